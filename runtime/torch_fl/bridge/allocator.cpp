#include "allocator.h"

#include <algorithm>
#include <mutex>
#include <string>

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "core/error.h"
#include "gil.h"
#include "transfer.h"

namespace torch_fl {
namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::DeviceStats;

void report_to_profiler(const Block& block, int64_t bytes) {
  if (C10_LIKELY(!c10::memoryProfilingEnabled())) return;
  const PoolStats stats = block.stream->device.pool().totals();
  c10::reportMemoryUsageToProfiler(reinterpret_cast<void*>(block.address), bytes, stats.allocated_bytes,
                                   stats.reserved_bytes, torch_device(block.stream->device.index));
}

// Within one device, in the order of its current stream.
void copy_within(Device& device, const Span& to, const Span& from, uint64_t bytes) {
  submit_copy(current_stream(device), {&device, to.base, to.byte_offset}, {&device, from.base, from.byte_offset},
              bytes);
}

Span span_at(const void* address) {
  return span_of(c10::DataPtr(const_cast<void*>(address), torch_device(current_device())));
}

class FlAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    ReleaseGil no_gil;
    return torch_fl::allocate(device_at(-1), bytes);
  }

  // Both of one device.
  void copy_data(void* to, const void* from, size_t bytes) const override {
    if (bytes == 0) return;
    const Block* block = block_at(reinterpret_cast<uintptr_t>(to));
    if (block == nullptr) raise(ErrorClass::kValue, "the target of this copy is no memory of an fl device");
    copy_within(block->stream->device, span_at(to), span_at(from), bytes);
  }

  bool initialized() override {
    return std::any_of(std::begin(device_list), std::end(device_list), [](const Device* d) { return d != nullptr; });
  }

  void emptyCache(c10::MempoolId_t /*pool*/) override {
    ReleaseGil no_gil;
    for (Device* device : device_list)
      if (device != nullptr) device->pool().empty_cache();
  }

  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (Block* block = memory_of(data).block) block->stream->device.pool().record_stream(block, stream_of(stream));
  }

  DeviceStats getDeviceStats(c10::DeviceIndex index) override;

  void resetAccumulatedStats(c10::DeviceIndex index) override;
  void resetPeakStats(c10::DeviceIndex index) override { device_at(index).pool().reset_peaks(); }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    uint64_t free = 0;
    uint64_t total = 0;
    device_at(index).pool().info(&free, &total);
    return {free, total};
  }

 private:
  std::mutex mutex_;
  PoolStats at_reset_[kMaxDevices] = {};  // guarded by mutex_
};

FlAllocator* const the_allocator = [] {
  auto* made = new FlAllocator;  // never destroyed: storages outlive static destructors
  c10::SetAllocator(kFl, made);
  return made;
}();

void record_stream(at::Tensor& tensor, c10::Stream stream) {
  the_allocator->recordStream(tensor.storage().data_ptr(), stream);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("record_stream", &record_stream); }

// Sums count from where they stood at the last reset.
Stat stat(uint64_t current, uint64_t peak, uint64_t total, uint64_t current_at_reset, uint64_t total_at_reset) {
  Stat out;
  out.current = static_cast<int64_t>(current);
  out.peak = static_cast<int64_t>(peak);
  out.allocated = static_cast<int64_t>(total - total_at_reset);
  out.freed = static_cast<int64_t>((total - current) - (total_at_reset - current_at_reset));
  return out;
}

#define FL_STAT(name) stat(now.name, now.name##_peak, now.name##_total, reset.name, reset.name##_total)

DeviceStats FlAllocator::getDeviceStats(c10::DeviceIndex index) {
  Device& device = device_at(index);
  const PoolStats now = device.pool().stats();
  std::lock_guard<std::mutex> lock(mutex_);
  const PoolStats& reset = at_reset_[device.index];
  DeviceStats out;
  constexpr auto all = static_cast<size_t>(StatType::AGGREGATE);
  out.allocated_bytes[all] = FL_STAT(allocated_bytes);
  out.requested_bytes[all] = FL_STAT(requested_bytes);
  out.reserved_bytes[all] = FL_STAT(reserved_bytes);
  out.segment[all] = FL_STAT(segments);
  out.allocation[all] =
      stat(now.active_blocks, now.active_blocks_peak, now.allocations, reset.active_blocks, reset.allocations);
  // Torch calls a block active until no stream uses it any more; of those that wait for one, only today's are known.
  out.active[all].current = static_cast<int64_t>(now.active_blocks + now.waiting_blocks);
  out.active[all].peak = std::max(out.active[all].current, out.allocation[all].peak);
  out.active_bytes[all].current = static_cast<int64_t>(now.allocated_bytes + now.waiting_bytes);
  out.active_bytes[all].peak = std::max(out.active_bytes[all].current, out.allocated_bytes[all].peak);
  out.inactive_split[all].current = static_cast<int64_t>(now.inactive_split_blocks);
  out.inactive_split_bytes[all].current = static_cast<int64_t>(now.inactive_split_bytes);
  out.num_alloc_retries = static_cast<int64_t>(now.retries - reset.retries);
  out.num_ooms = static_cast<int64_t>(now.out_of_memory - reset.out_of_memory);
  out.num_device_alloc = out.segment[all].allocated;
  out.num_device_free = out.segment[all].freed;
  return out;
}

void FlAllocator::resetAccumulatedStats(c10::DeviceIndex index) {
  Device& device = device_at(index);
  const PoolStats now = device.pool().stats();
  std::lock_guard<std::mutex> lock(mutex_);
  at_reset_[device.index] = now;
}

}  // namespace

c10::DeviceAllocator& allocator() { return *the_allocator; }

c10::DataPtr allocate(Device& device, uint64_t bytes) {
  const c10::Device where = torch_device(device.index);
  if (bytes == 0) return {nullptr, where};
  Block* block = device.pool().allocate(bytes, current_stream(device));
  report_to_profiler(*block, static_cast<int64_t>(bytes));
  return {reinterpret_cast<void*>(block->address), block, &release_block, where};
}

void release_block(void* context) {
  auto* block = static_cast<Block*>(context);
  report_to_profiler(*block, -static_cast<int64_t>(block->requested));
  block->stream->device.pool().release(block);
}

Memory foreign_memory(const c10::DataPtr& data) {
  const auto address = reinterpret_cast<uintptr_t>(data.get());
  Block* block = block_at(address);
  if (block != nullptr) return {block, address - block->address};
  raise(ErrorClass::kRuntime, "a storage on " + data.device().str() +
                                  " holds memory that torch_fl did not allocate; copy the data into a tensor made with "
                                  "device=\"" +
                                  data.device().str() + "\"");
}

void resize_storage(c10::StorageImpl& storage, uint64_t bytes) {
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  Device& device = device_of(storage.device());
  const Memory old = memory_of(storage.data_ptr());
  c10::DataPtr data = allocate(device, bytes);
  const uint64_t kept = std::min<uint64_t>(storage.nbytes(), bytes);
  if (old.block != nullptr && kept != 0) {
    copy_within(device, span_of(data), span_of(storage.data_ptr()), kept);
    // The old block is freed at once, for the stream it was allocated for: which need not be the one that reads it.
    device.pool().record_stream(old.block, current_stream(device));
  }
  storage.set_data_ptr_noswap(std::move(data));
  storage.set_nbytes(bytes);
}

}  // namespace torch_fl
