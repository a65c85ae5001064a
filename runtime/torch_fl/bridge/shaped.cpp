#include "shaped.h"

#include <ATen/native/Resize.h>

namespace torch_fl {

at::Tensor new_output(c10::IntArrayRef sizes, c10::IntArrayRef strides, const c10::TensorOptions& options) {
  Device& device = device_of(options.device());
  const c10::ScalarType dtype = c10::typeMetaToScalarType(options.dtype());
  if (!strides.empty()) return empty_on(device, dtype, sizes, strides);
  at::Tensor out = empty_on(device, dtype, sizes);
  if (C10_UNLIKELY(options.memory_format_opt().has_value()))
    out.unsafeGetTensorImpl()->empty_tensor_restride(*options.memory_format_opt());
  return out;
}

void check_inplace(const at::Tensor& self, c10::IntArrayRef sizes, const c10::TensorOptions& options) {
  TORCH_CHECK(options.dtype() == self.dtype(), "Bad in-place call: input tensor dtype ", self.dtype(),
              " and output tensor dtype ", options.dtype(), " should match");
  TORCH_CHECK(options.device() == self.device(), "Bad in-place call: input tensor device ", self.device(),
              " and output tensor device ", options.device(), " should match");
  TORCH_CHECK(sizes == self.sizes(), "Bad in-place call: input tensor size ", self.sizes(),
              " and output tensor size ", sizes, " should match");
}

void fit_out(const at::Tensor& out, c10::IntArrayRef sizes, c10::IntArrayRef strides,
             const c10::TensorOptions& options) {
  TORCH_CHECK(options.dtype() == out.dtype(), "Expected out tensor to have dtype ", options.dtype(), ", but got ",
              out.dtype(), " instead");
  TORCH_CHECK(options.device() == out.device(), "Expected out tensor to have device ", options.device(), ", but got ",
              out.device(), " instead");
  if (!at::native::resize_output(out, sizes)) return;
  if (!strides.empty())
    out.as_strided_(sizes, strides);
  else if (options.memory_format_opt().has_value())
    out.unsafeGetTensorImpl()->empty_tensor_restride(*options.memory_format_opt());
}

}  // namespace torch_fl
