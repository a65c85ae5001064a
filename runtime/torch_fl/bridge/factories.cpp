#include "factories.h"

#include <optional>

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>
#include <c10/core/DefaultDtype.h>
#include <torch/library.h>

#include "allocator.h"
#include "core/profile.h"

namespace torch_fl {
namespace {

at::Tensor with_bytes(Device& device, c10::ScalarType dtype, size_t bytes) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                       allocate(device, bytes), &allocator(), /*resizable=*/true);
  const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, c10::scalarTypeToTypeMeta(dtype));
}

c10::ScalarType checked_dtype(std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                              std::optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(c10::kStrided) == c10::kStrided,
                              "fl devices hold strided tensors only, not layout ", *layout);
  const c10::ScalarType type = dtype.value_or(c10::get_default_dtype_as_scalartype());
  TORCH_CHECK_NOT_IMPLEMENTED(!c10::isQIntType(type), "fl devices hold no quantized tensors, not dtype ", type);
  return type;
}

// Torch's word on uninitialised memory where the user wants runs to repeat.
void fill_if_deterministic(at::Tensor& tensor) {
  at::Context& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory()))
    at::native::fill_empty_deterministic_(tensor);
}

at::Tensor empty(c10::IntArrayRef sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                 std::optional<c10::Device> device, std::optional<bool> pin_memory,
                 std::optional<c10::MemoryFormat> memory_format) {
  const c10::ScalarType type = checked_dtype(dtype, layout, pin_memory);
  at::detail::check_size_nonnegative(sizes);
  Device& owner = device_of(device.value_or(torch_device(-1)));
  note_served(owner, ServedBy::kHost);
  at::Tensor out = empty_on(owner, type, sizes);
  if (memory_format.value_or(c10::MemoryFormat::Contiguous) != c10::MemoryFormat::Contiguous)
    out.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  fill_if_deterministic(out);
  return out;
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                         std::optional<bool> pin_memory) {
  const c10::ScalarType type = checked_dtype(dtype, layout, pin_memory);
  at::detail::check_size_nonnegative(sizes);
  TORCH_CHECK(sizes.size() == strides.size(), "dimensionality of sizes (", sizes.size(),
              ") must match dimensionality of strides (", strides.size(), ")");
  for (int64_t stride : strides)
    TORCH_CHECK(stride >= 0, "Negative strides are not supported, got strides: ", strides);
  Device& owner = device_of(device.value_or(torch_device(-1)));
  note_served(owner, ServedBy::kHost);
  at::Tensor out = empty_on(owner, type, sizes, strides);
  fill_if_deterministic(out);
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
}

}  // namespace

at::Tensor empty_on(Device& device, c10::ScalarType dtype, c10::IntArrayRef sizes) {
  at::Tensor out = with_bytes(device, dtype,
                              at::detail::computeStorageNbytesContiguous(sizes, c10::elementSize(dtype)));
  if (sizes.size() != 1 || sizes[0] != 0) out.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return out;
}

at::Tensor empty_on(Device& device, c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  at::Tensor out =
      with_bytes(device, dtype, at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(dtype)));
  out.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return out;
}

}  // namespace torch_fl
