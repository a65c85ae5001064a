// Pinned host memory: what tensor.pin_memory() and DataLoader(pin_memory=True) give.
#pragma once
#include <ATen/core/CachingHostAllocator.h>

#include "core/stream.h"

namespace torch_fl {

// Pins with fl.pinned of the current device's vendor. Where that vendor has none, or there is no device, the memory is
// ordinary, 64-byte aligned, and copies of it only cost more: every use of it is right either way. Lives for ever.
// Memory that copies still use when it is released is handed out again once they are done.
at::HostAllocator& pinned_allocator();

// Whether the byte belongs to live memory of pinned_allocator().
bool is_pinned(const void* pointer);

// A copy from or to this memory has been submitted to the stream. False: it is not of pinned_allocator(), nothing is
// done, and the caller sees to it that the memory outlives the copy.
bool pinned_record(const void* pointer, Stream& stream);

}  // namespace torch_fl
