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

// The deleter of every DataPtr whose context is one of the pool's blocks; it is how such a DataPtr is told from others.
void release_block(void* block);
[[noreturn]] void raise_foreign_storage(const c10::DataPtr& data);

// The block behind a storage, null where it has no bytes. Raises for memory that this allocator did not give.
inline Block* block_of(const c10::DataPtr& data) {
  if (C10_LIKELY(data.get_deleter() == &release_block)) return static_cast<Block*>(data.get_context());
  if (data.get() == nullptr) return nullptr;
  raise_foreign_storage(data);
}

inline Block* block_of(const at::TensorBase& tensor) { return block_of(tensor.storage().data_ptr()); }

// Of element 0 of the tensor: from the context of its storage, never from its address, which need be none of the
// vendor's (FL_ADDRESS_HANDLE).
inline Span span_of(const at::TensorBase& tensor) {
  const Block* block = block_of(tensor);
  if (C10_UNLIKELY(block == nullptr)) return {0, 0, 0};
  return {block->base, block->offset + static_cast<uint64_t>(tensor.storage_offset()) * tensor.itemsize(),
          block->base_bytes};
}

// Gives the storage `bytes` bytes; the first min(old, new) keep their value, in the order of the current stream.
void resize_storage(c10::StorageImpl& storage, uint64_t bytes);

}  // namespace torch_fl
