// zero_(): any dtype's zero is all bits zero, so memory without gaps needs no kernel.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "convert.h"
#include "transfer.h"

namespace torch_fl {
namespace {

at::Tensor& zero_(at::Tensor& self) {
  if (self.numel() == 0) return self;
  if (!self.is_non_overlapping_and_dense()) return self.fill_(0);
  submit_zeros(current_stream(device_of(self.device())), place_of(self),
               static_cast<uint64_t>(self.numel()) * self.itemsize());
  return self;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("zero_", &zero_); }

}  // namespace
}  // namespace torch_fl
