// Where tensors' memory comes from, and what a vendor gets to see of it.
#pragma once
#include <ATen/core/TensorBase.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "convert.h"
#include "core/pool.h"

namespace torch_fl {

// A tensor's memory as fl_tensor has it: `base` is a value of mem_alloc, element 0 lies byte_offset bytes from there, and
// every access stays below base_bytes. All 0 for a tensor without bytes.
struct Span {
  uint64_t base;
  uint64_t byte_offset;
  uint64_t base_bytes;
};

// The allocator of all fl devices: bytes of the current device, for its current stream. Lives for ever.
c10::DeviceAllocator& allocator();

// Memory of a given device for its current stream; 0 bytes give a null pointer that names the device.
c10::DataPtr allocate(Device& device, uint64_t bytes);

// Where a storage's bytes begin: `skip` bytes into a block. No block: it has no bytes.
struct Memory {
  Block* block;
  uint64_t skip;
};

// The deleter of every DataPtr whose context is one of the pool's blocks; it is how such a DataPtr is told from others.
void release_block(void* block);
// Found by its address: torch wraps addresses of data_ptr() anew (from_blob, when it pickles a storage). Raises where the
// memory is none of this allocator's.
Memory foreign_memory(const c10::DataPtr& data);

inline Memory memory_of(const c10::DataPtr& data) {
  if (C10_LIKELY(data.get_deleter() == &release_block)) return {static_cast<Block*>(data.get_context()), 0};
  if (data.get() == nullptr) return {nullptr, 0};
  return foreign_memory(data);
}

// Of the storage's first byte. From the context of the storage, since its address need be none of the vendor's
// (FL_ADDRESS_HANDLE).
inline Span span_of(const c10::DataPtr& data) {
  const Memory memory = memory_of(data);
  if (C10_UNLIKELY(memory.block == nullptr)) return {0, 0, 0};
  return {memory.block->base, memory.block->offset + memory.skip, memory.block->base_bytes};
}

// Of the tensor's element 0.
inline Span span_of(const at::TensorBase& tensor) {
  Span span = span_of(tensor.storage().data_ptr());
  if (C10_LIKELY(span.base != 0))
    span.byte_offset += static_cast<uint64_t>(tensor.storage_offset()) * tensor.itemsize();
  return span;
}

// Gives the storage `bytes` bytes; the first min(old, new) keep their value, in the order of the current stream.
void resize_storage(c10::StorageImpl& storage, uint64_t bytes);

}  // namespace torch_fl
