// Tensors that change their size or their storage.
#include <algorithm>
#include <optional>

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/set_native.h>
#include <torch/library.h>

#include "allocator.h"

namespace torch_fl {
namespace {

// Sizes, strides (empty: contiguous) and, before them, as much storage as they need: where there is none, the tensor
// stays as it was. A storage never shrinks.
void resize(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides, bool contiguous) {
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  if (self.sizes() == sizes && (contiguous || self.strides() == strides)) return;
  if (std::find(sizes.begin(), sizes.end(), 0) == sizes.end()) {
    const size_t offset = static_cast<size_t>(impl->storage_offset());
    const size_t bytes = contiguous
                             ? at::detail::computeStorageNbytesContiguous(sizes, self.itemsize(), offset)
                             : at::detail::computeStorageNbytes(sizes, strides, self.itemsize(), offset);
    c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
    if (bytes > storage->nbytes()) resize_storage(*storage, bytes);
  }
  if (contiguous)
    impl->set_sizes_contiguous(sizes);
  else
    impl->set_sizes_and_strides(sizes, strides);
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef sizes,
                          std::optional<c10::MemoryFormat> memory_format) {
  at::detail::check_size_nonnegative(sizes);
  const size_t old_bytes = self.storage().nbytes();
  resize(self, sizes, {}, /*contiguous=*/true);
  if (memory_format.has_value()) {
    TORCH_CHECK(*memory_format != c10::MemoryFormat::Preserve, "Unsupported memory format", *memory_format);
    self.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  }
  at::Context& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory()))
    at::native::fill_resize_deterministic_(self, static_cast<int64_t>(old_bytes));
  return self;
}

at::Tensor& set_storage_(at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef sizes,
                         c10::IntArrayRef strides) {
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  const at::Storage former = self.storage();
  const int64_t former_offset = self.storage_offset();
  at::native::checkSetStorage(self, source, offset, sizes, strides);
  try {
    impl->set_storage_offset(offset);
    // torch gives a null list where the caller named no strides, an empty one for a 0-dim tensor.
    resize(self, sizes, strides, /*contiguous=*/strides.data() == nullptr);
  } catch (...) {  // the former sizes are too large, perhaps, for the new storage
    impl->set_storage_keep_dtype(former);
    impl->set_storage_offset(former_offset);
    throw;
  }
  return self;
}

at::Tensor& set_whole_storage_(at::Tensor& self, at::Storage source) {
  const int64_t numel = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage_(self, std::move(source), 0, numel, {});
}

at::Tensor& set_nothing_(at::Tensor& self) {
  Device& device = device_of(self.device());
  at::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0,
                                                            allocate(device, 0), &allocator(), /*resizable=*/true));
  return set_storage_(self, std::move(storage), 0, {0}, {});
}

// With torch's warning where the output has elements.
const at::Tensor& resize_output_(const at::Tensor& self, c10::IntArrayRef sizes, c10::Device device) {
  TORCH_CHECK(self.device() == device, "out Tensor doesn't have the correct device set");
  at::native::resize_output(self, sizes);
  return self;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("resize_", &resize_);
  m.impl("_resize_output_", &resize_output_);
  m.impl("set_", &set_nothing_);
  m.impl("set_.source_Storage", &set_whole_storage_);
  m.impl("set_.source_Storage_storage_offset", &set_storage_);
  m.impl("set_.source_Tensor", &at::native::set_tensor_);
}

}  // namespace
}  // namespace torch_fl
