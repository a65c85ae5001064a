// Bytes from one place to another: what every copy comes down to, and the order that copies keep.
#pragma once
#include <cstdint>

#include <ATen/core/TensorBase.h>

#include "core/stream.h"

namespace torch_fl {

// A location as the vendor addresses it [FL-MEM-001]. Host memory: device is null, base the pointer.
struct Place {
  Device* device;
  uint64_t base;
  uint64_t offset;  // bytes
};

// Of element 0 of a tensor on an fl device or the CPU. numel > 0.
Place place_of(const at::TensorBase& tensor);

// Enqueues one vendor copy of bytes >= 1 and returns. The stream is of the source's or the destination's device, and
// these are of one vendor. An ordinary host source is captured; any other host memory must outlive the copy. Raises
// what the vendor says; counts bytes_moved.
void submit_copy(Stream& stream, const Place& destination, const Place& source, uint64_t bytes);

// Enqueues `bytes` zeros.
void submit_zeros(Stream& stream, const Place& destination, uint64_t bytes);

// Later work of `later` starts after what `earlier` has been given so far. Two vendors: the calling thread waits.
void order(Stream& earlier, Stream& later);

// Between two devices, after all work that the calling thread's current streams of both have been given, and before
// any later work of them. Two vendors: the calling thread waits for the source's stream.
void move_between(const Place& destination, const Place& source, uint64_t bytes);

// Waits for the stream while it writes to the memory of `target`, a CPU tensor. If the wait ends early (Ctrl-C), the
// memory is kept for as long as the process lives, since the device may still write to it.
void wait_for_host_write(Stream& stream, const at::TensorBase& target);

// Whether copies between the device and this host memory neither capture nor wait [FL-COPY-002].
bool is_pinned_for(const Device& device, const void* pointer);

// Bytes that copies of the calling thread have moved between a device and the host so far: the difference of two
// readings is what lies between.
uint64_t bytes_moved() noexcept;

}  // namespace torch_fl
