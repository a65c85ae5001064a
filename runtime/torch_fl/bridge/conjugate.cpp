// Conjugation where it is written to memory: the imaginary parts change their sign. Torch's own kernels for it know the
// devices that torch comes with only.
#include <ATen/core/Tensor.h>
#include <ATen/ops/view_as_real.h>
#include <torch/library.h>

namespace torch_fl {
namespace {

at::Tensor& conj_physical_(at::Tensor& self) {
  if (self.is_complex()) at::view_as_real(self).select(-1, 1).neg_();
  return self;
}

at::Tensor& conj_physical_out(const at::Tensor& self, at::Tensor& out) {
  if (!out.is_same(self)) {
    out.resize_(self.sizes());
    out.copy_(self);
  }
  return conj_physical_(out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("conj_physical_", &conj_physical_);
  m.impl("conj_physical.out", &conj_physical_out);
}

}  // namespace
}  // namespace torch_fl
