// Segments: how a pool gets memory from the vendor and gives it back.
#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "pool_state.h"

namespace torch_fl {

namespace {

// A request is served from a segment that others will share, except where it is large or the device small.
uint64_t segment_bytes(const Request& request, const Device& device) {
  if (request.size >= kOwnSegment) return round_up(request.size, kLargeStep);
  uint64_t shared = std::min(request.small ? kSmallSegment : kLargeSegment, device.info.total_bytes / 16);
  uint64_t granule = std::max<uint64_t>(kLargeRounding, device.info.alloc_align);
  return std::max(request.size, shared / granule * granule);
}

}  // namespace

PoolState::~PoolState() {
  try {
    flush();
  } catch (...) {  // the device is beyond use, and its memory with it
  }
}

Node* PoolState::grow(const Request& request) {
  VendorError error;
  Node* found = nullptr;
  fl_status status = add_segment(segment_bytes(request, device), request, error, &found);
  if (status == FL_OUT_OF_MEMORY) {
    flush();
    {
      SpinGuard guard(lock);
      retries += 1;
      found = take_locked(request);  // blocks that flush() waited for
      if (found != nullptr) {
        hand_out_locked(found, request.bytes);
        return found;
      }
    }
    status = add_segment(request.size, request, error, &found);
  }
  if (status == FL_OUT_OF_MEMORY) raise_out_of_memory(request, error);
  check(status, error, device, [&] { return "mem_alloc of " + std::to_string(request.size) + " bytes"; });
  return found;
}

// Gets a segment and serves the request from it, or gives the vendor's status; FL_OUT_OF_MEMORY also for what the
// memory fraction forbids.
fl_status PoolState::add_segment(uint64_t bytes, const Request& request, VendorError& error, Node** out) {
  auto segment = std::make_unique<Segment>();
  Node* first = nullptr;
  {
    SpinGuard guard(lock);
    if (reserved.now() + growing + bytes > limit) return FL_OUT_OF_MEMORY;
    first = spare_locked();
    if (first == nullptr) throw std::bad_alloc();
    growing += bytes;
  }
  fl_mem_alloc_args args = {sizeof args, FL_KIND_MEM_ALLOC_ARGS, nullptr, bytes, 0, FL_ALLOC_DEVICE, 0};
  uint64_t base = 0;
  fl_status status = device.vendor.memory.alloc(device.handle, &args, &base, error.out());
  auto undo = [&] {
    SpinGuard guard(lock);
    growing -= bytes;
    first->free_next = spare_nodes;
    spare_nodes = first;
  };
  if (status != FL_OK) {
    undo();
    return status;
  }

  *segment = {this, request.memory, request.stream, base, bytes, {}, request.small, first, nullptr, nullptr};
  *first = Node{};
  first->base = base;
  first->bytes = bytes;
  first->base_bytes = bytes;
  first->stream = request.stream;
  first->segment = segment.get();
  first->state = NodeState::kWaiting;  // until the segment is among the pool's
  try {
    segment->addresses = claim_addresses(segment.get(), device, base, bytes);
  } catch (...) {
    device.vendor.memory.free(device.handle, base, bytes, nullptr);
    undo();
    throw;
  }

  SpinGuard guard(lock);
  first->address = segment->addresses.begin;
  attach_locked(segment.release());
  growing -= bytes;
  reserved.add(bytes);
  segments.add(1);
  misses += 1;
  *out = cut_locked(first, request);
  hand_out_locked(*out, request.bytes);
  return FL_OK;
}

void PoolState::attach_locked(Segment* segment) noexcept {
  segment->previous = nullptr;
  segment->next = first_segment;
  if (first_segment != nullptr) first_segment->previous = segment;
  first_segment = segment;
}

// Takes all wholly free segments and their blocks out of the pool; a list by `next`.
Segment* PoolState::detach_free_segments_locked() noexcept {
  for (auto& memory : memories) {
    if (memory != nullptr) join_bins_locked(*memory);
  }
  Segment* detached = nullptr;
  for (Segment* segment = first_segment; segment != nullptr;) {
    Segment* next = segment->next;
    if (segment->wholly_free()) {
      (segment->small ? segment->memory->small : segment->memory->large).remove(segment->first);
      segment->first->state = NodeState::kWaiting;
      if (segment->previous != nullptr) segment->previous->next = next;
      if (segment->previous == nullptr) first_segment = next;
      if (next != nullptr) next->previous = segment->previous;
      segment->next = detached;
      detached = segment;
    }
    segment = next;
  }
  return detached;
}

// One flush at a time, so that each finds all there is.
std::unique_lock<std::mutex> PoolState::wait_for_turn() {
  std::unique_lock<std::mutex> turn(turn_mutex, std::try_to_lock);
  if (turn.owns_lock()) return turn;
  // By looking again and again, so that it can be interrupted.
  auto wait = [](void* argument) {
    auto& taken = *static_cast<std::unique_lock<std::mutex>*>(argument);
    while (!taken.try_lock()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (check_signals != nullptr) check_signals();
    }
  };
  if (blocking != nullptr) {
    blocking(wait, &turn);
  } else {
    wait(&turn);
  }
  return turn;
}

// Gives every wholly free segment back. Whoever released its blocks has only submitted the work that uses them, so its
// stream is waited for first.
void PoolState::flush() {
  std::unique_lock<std::mutex> turn = wait_for_turn();
  wait_for_uses_in_turn();
  Segment* detached = nullptr;
  {
    SpinGuard guard(lock);
    detached = detach_free_segments_locked();
  }
  try {
    std::set<Stream*> streams;
    for (Segment* segment = detached; segment != nullptr; segment = segment->next) streams.insert(segment->stream);
    for (Stream* stream : streams) stream->drain();
  } catch (...) {
    SpinGuard guard(lock);
    while (Segment* segment = detached) {
      detached = segment->next;
      attach_locked(segment);
      join_locked(segment->first);
    }
    throw;
  }
  while (Segment* segment = detached) {
    detached = segment->next;
    give_back(segment);
  }
}

void PoolState::give_back(Segment* segment) noexcept {
  release_addresses(segment->addresses);
  device.vendor.memory.free(device.handle, segment->base, segment->bytes, nullptr);  // releases whatever it returns
  if (lock.lock()) {
    reserved.removed += segment->bytes;
    segments.removed += 1;
    segment->first->free_next = spare_nodes;
    spare_nodes = segment->first;
    lock.unlock();
  }
  delete segment;
}

}  // namespace torch_fl
