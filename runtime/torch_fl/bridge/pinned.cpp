#include "pinned.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "convert.h"
#include "core/error.h"
#include "core/event_pool.h"
#include "core/fork.h"

namespace torch_fl {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kPage = 4096;

struct Mark {  // recorded behind the last copy on some stream
  Device* device;
  fl_event event;
};

struct PinnedBlock {
  char* pointer;
  uint64_t bytes;
  Device* device;                // through which it was pinned; null: ordinary memory
  bool live;                     // handed out
  std::vector<Stream*> streams;  // copies were submitted to these since it was handed out
  std::vector<Mark> marks;       // made on them after its release

  const Vendor* vendor() const { return device != nullptr ? &device->vendor : nullptr; }
};

char* system_alloc(Device* device, uint64_t bytes) {
  void* pointer = nullptr;
  if (device != nullptr) {
    VendorError error;
    check(device->vendor.pinned->alloc(device->handle, bytes, &pointer, error.out()), error, *device,
          [&] { return "pinning " + std::to_string(bytes) + " bytes of host memory"; });
  } else if (posix_memalign(&pointer, kAlignment, bytes) != 0) {
    raise(ErrorClass::kOutOfMemory, "no host memory for " + std::to_string(bytes) + " bytes");
  }
  return static_cast<char*>(pointer);
}

void system_free(const PinnedBlock& block) noexcept {
  if (block.device != nullptr)
    block.device->vendor.pinned->free(block.device->handle, block.pointer, nullptr);
  else
    std::free(block.pointer);
}

void release_pinned(void* block);

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::DeviceType::CPU};
    device_count();
    Device* device = device_list[current_device()];
    if (device != nullptr && device->vendor.pinned == nullptr) device = nullptr;
    PinnedBlock* block = take(bytes, device);
    return {block->pointer, block, &release_pinned, c10::DeviceType::CPU};
  }

  void release(PinnedBlock* block) {
    if (forked()) return;  // another thread may have held the lock when this process began
    std::lock_guard<std::mutex> lock(mutex_);
    block->live = false;
    live_bytes_.decrease(block->bytes);
    live_blocks_.decrease(1);
    settle(*block) ? cache(block) : waiting_.push_back(block);
  }

  bool record(const void* pointer, Stream& stream) {
    std::lock_guard<std::mutex> lock(mutex_);
    PinnedBlock* block = find(pointer);
    if (block == nullptr) return false;
    auto& streams = block->streams;
    if (std::find(streams.begin(), streams.end(), &stream) == streams.end()) streams.push_back(&stream);
    return true;
  }

  bool owns(const void* pointer) {
    if (forked()) return false;
    std::lock_guard<std::mutex> lock(mutex_);
    return find(pointer) != nullptr;
  }

  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }  // the context is not the pointer
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  bool record_event(void* pointer, void* /*context*/, c10::Stream stream) override {
    return record(pointer, stream_of(stream));
  }

  void empty_cache() override {
    std::lock_guard<std::mutex> lock(mutex_);
    free_cached();
  }

  at::HostStats get_stats() override {
    std::lock_guard<std::mutex> lock(mutex_);
    at::HostStats stats;
    stats.active_requests = live_blocks_;
    stats.active_bytes = live_bytes_;
    stats.allocations = all_blocks_;
    stats.allocated_bytes = all_bytes_;
    stats.num_host_alloc = all_blocks_.allocated;
    stats.num_host_free = all_blocks_.freed;
    return stats;
  }
  void reset_accumulated_stats() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (at::Stat* stat : {&live_blocks_, &live_bytes_, &all_blocks_, &all_bytes_}) stat->reset_accumulated();
  }
  void reset_peak_stats() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (at::Stat* stat : {&live_blocks_, &live_bytes_, &all_blocks_, &all_bytes_}) stat->reset_peak();
  }

 private:
  using Key = std::pair<const Vendor*, uint64_t>;  // whose, and how large

  PinnedBlock* take(uint64_t bytes, Device* device) {
    const uint64_t unit = bytes < kPage ? kAlignment : kPage;
    bytes = (bytes + unit - 1) / unit * unit;
    const Vendor* vendor = device != nullptr ? &device->vendor : nullptr;
    std::lock_guard<std::mutex> lock(mutex_);
    collect();
    PinnedBlock* block = nullptr;
    auto found = cached_.lower_bound({vendor, bytes});
    if (found != cached_.end() && found->first.first == vendor && found->first.second <= 2 * bytes) {
      block = found->second;
      cached_.erase(found);
    } else {
      block = make(bytes, device);
    }
    block->live = true;
    live_bytes_.increase(block->bytes);
    live_blocks_.increase(1);
    return block;
  }

  PinnedBlock* make(uint64_t bytes, Device* device) {
    char* pointer = nullptr;
    try {
      pointer = system_alloc(device, bytes);
    } catch (const c10::Error&) {
      if (cached_.empty()) throw;
      free_cached();
      pointer = system_alloc(device, bytes);
    }
    auto* block = new PinnedBlock{pointer, bytes, device, false, {}, {}};
    blocks_[reinterpret_cast<uintptr_t>(pointer)] = block;
    all_bytes_.increase(bytes);
    all_blocks_.increase(1);
    return block;
  }

  // True once no copy can touch the released block any more. Asks the vendor itself: what Event raises counts as seen by
  // the user, and a stream's failure must not be swallowed here. A stream that has failed, or whose device is lost, runs
  // nothing any more [FL-ERROR-004]; where the record fails otherwise, it is tried again.
  static bool settle(PinnedBlock& block) noexcept {
    auto& streams = block.streams;
    streams.erase(std::remove_if(streams.begin(), streams.end(), [&](Stream* stream) { return mark(block, *stream); }),
                  streams.end());
    auto& marks = block.marks;
    marks.erase(std::remove_if(marks.begin(), marks.end(), is_over), marks.end());
    return streams.empty() && marks.empty();
  }

  static bool mark(PinnedBlock& block, Stream& stream) noexcept {
    Device& device = stream.device;
    EventPool& events = device.streams().events();
    VendorError error;
    fl_event event = nullptr;
    if (events.take(false, &event, error) != FL_OK) return false;
    const fl_status status = device.vendor.event.record(event, stream.handle(), nullptr);
    if (status == FL_OK) {
      block.marks.push_back({&device, event});
      return true;
    }
    events.give_back(event, false);
    return status == FL_ASYNC_FAILURE || status == FL_DEVICE_LOST;
  }

  static bool is_over(const Mark& mark) noexcept {
    if (mark.device->vendor.event.query(mark.event, nullptr) == FL_NOT_READY) return false;
    mark.device->streams().events().give_back(mark.event, false);
    return true;
  }

  void collect() {
    waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(),
                                  [&](PinnedBlock* block) {
                                    if (!settle(*block)) return false;
                                    cache(block);
                                    return true;
                                  }),
                   waiting_.end());
  }

  void cache(PinnedBlock* block) { cached_.insert({Key{block->vendor(), block->bytes}, block}); }

  void free_cached() {
    collect();
    for (auto& [key, block] : cached_) {
      blocks_.erase(reinterpret_cast<uintptr_t>(block->pointer));
      all_bytes_.decrease(block->bytes);
      all_blocks_.decrease(1);
      system_free(*block);
      delete block;
    }
    cached_.clear();
  }

  PinnedBlock* find(const void* pointer) {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    auto after = blocks_.upper_bound(address);
    if (after == blocks_.begin()) return nullptr;
    PinnedBlock* block = std::prev(after)->second;
    return block->live && address - std::prev(after)->first < block->bytes ? block : nullptr;
  }

  std::mutex mutex_;
  std::map<uintptr_t, PinnedBlock*> blocks_;  // all, by address
  std::multimap<Key, PinnedBlock*> cached_;   // released and settled
  std::vector<PinnedBlock*> waiting_;         // released, copies pending
  at::Stat live_blocks_, live_bytes_, all_blocks_, all_bytes_;
};

PinnedAllocator* const the_pinned_allocator = [] {
  auto* made = new PinnedAllocator;  // never destroyed: tensors outlive static destructors
  at::setHostAllocator(kFl, made);
  return made;
}();

void release_pinned(void* block) { the_pinned_allocator->release(static_cast<PinnedBlock*>(block)); }

}  // namespace

at::HostAllocator& pinned_allocator() { return *the_pinned_allocator; }
bool is_pinned(const void* pointer) { return the_pinned_allocator->owns(pointer); }
bool pinned_record(const void* pointer, Stream& stream) { return the_pinned_allocator->record(pointer, stream); }

}  // namespace torch_fl
