// Blocks that further streams use: each release records an event on each of them, and the block is free once all of
// these have completed.
#include <algorithm>

#include "event_pool.h"
#include "pool_state.h"
#include "profile.h"
#include "wait.h"

namespace torch_fl {

namespace {

// Where no event is to be had the caller waits, and nothing may interrupt it: it is in the middle of a release.
void wait_on_host(Stream& stream) noexcept {
  while (stream.device.vendor.stream.sync(stream.handle(), kSliceNs, nullptr) == FL_TIMEOUT) {
  }
}

// Records what must complete before the stream has done with the block; says nothing where it has done already.
void record_use(Uses& uses, Stream& stream) noexcept {
  Device& device = stream.device;
  EventPool& events = device.streams().events();
  VendorError error;
  fl_event event = nullptr;
  if (events.take(false, &event, error) == FL_OK) {
    fl_status status = device.vendor.event.record(event, stream.handle(), error.out());
    if (status == FL_OK) {
      uses.pending.push_back({&device, event});  // there is room
      return;
    }
    events.give_back(event, false);
    if (status == FL_ASYNC_FAILURE || status == FL_DEVICE_LOST) return;  // it runs nothing any more
  }
  wait_on_host(stream);
}

bool completed(const Uses::Pending& pending) noexcept {
  fl_status status = pending.device->vendor.event.query(pending.event, nullptr);
  return status == FL_OK || status == FL_ASYNC_FAILURE || status == FL_DEVICE_LOST;
}

}  // namespace

void PoolState::add_use(Node* used, Stream& stream) {
  // What an INLINE device was given is complete.
  if (&stream == used->stream || stream.device.is_inline) return;
  refuse_forked();
  std::lock_guard<std::mutex> guard(uses_mutex);
  Uses* uses = static_cast<Uses*>(used->bookkeeping);
  if (uses == nullptr) {
    uses = new Uses{used, {}, {}, nullptr};
    SpinGuard block_guard(lock);  // snapshot() reads blocks
    used->bookkeeping = uses;
  }
  if (std::find(uses->streams.begin(), uses->streams.end(), &stream) == uses->streams.end()) {
    uses->streams.push_back(&stream);
    uses->pending.reserve(uses->streams.size());  // a release must not fail
  }
}

void PoolState::release_used(Node* released) noexcept {
  if (forked()) return;
  Uses* uses = static_cast<Uses*>(released->bookkeeping);
  for (Stream* stream : uses->streams) record_use(*uses, *stream);
  std::lock_guard<std::mutex> guard(uses_mutex);
  if (!lock.lock()) return;
  released->bookkeeping = nullptr;
  released->allocated = false;
  released->state = NodeState::kWaiting;
  allocated.removed += released->bytes;
  requested.removed += released->requested;
  blocks.removed += 1;
  lock.unlock();
  uses->next = waiting;
  waiting = uses;
  waiting_blocks.fetch_add(1, std::memory_order_relaxed);
}

// Frees the blocks whose further streams have done with them; whether there were any. Waits for nothing: whoever has
// the turn sees to them.
bool PoolState::reclaim_completed() noexcept {
  if (waiting_blocks.load(std::memory_order_relaxed) == 0) return false;
  std::unique_lock<std::mutex> turn(turn_mutex, std::try_to_lock);
  return turn.owns_lock() && reclaim_in_turn();
}

namespace {

// The waiting blocks, for as long as one thread looks after their events: what is left of them goes back.
class Taken {
 public:
  explicit Taken(PoolState& pool) : pool_(pool) {
    std::lock_guard<std::mutex> guard(pool_.uses_mutex);
    std::swap(first, pool_.waiting);
  }
  ~Taken() {
    if (first == nullptr) return;
    Uses* last = first;
    while (last->next != nullptr) last = last->next;
    std::lock_guard<std::mutex> guard(pool_.uses_mutex);
    last->next = pool_.waiting;
    pool_.waiting = first;
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

  Uses* first = nullptr;

 private:
  PoolState& pool_;
};

}  // namespace

bool PoolState::reclaim_in_turn() noexcept {
  bool any = false;
  Taken taken(*this);
  for (Uses** link = &taken.first; *link != nullptr;) {
    Uses* uses = *link;
    while (!uses->pending.empty() && completed(uses->pending.back())) {
      Uses::Pending done = uses->pending.back();
      uses->pending.pop_back();
      done.device->streams().events().give_back(done.event, false);
    }
    if (!uses->pending.empty()) {
      link = &uses->next;
      continue;
    }
    if (!lock.lock()) return any;
    free_locked(uses->node);
    lock.unlock();
    *link = uses->next;
    waiting_blocks.fetch_sub(1, std::memory_order_relaxed);
    delete uses;
    any = true;
  }
  return any;
}

// Waits until every block that is waiting at the call is free.
void PoolState::wait_for_uses_in_turn() {
  {
    Taken taken(*this);
    for (Uses* uses = taken.first; uses != nullptr; uses = uses->next) {
      for (const Uses::Pending& one : uses->pending) {
        NotedWait noted(*one.device);
        wait_in_slices([&](uint64_t slice) { return one.device->vendor.event.sync(one.event, slice, nullptr); });
      }
    }
  }
  reclaim_in_turn();
}

}  // namespace torch_fl
