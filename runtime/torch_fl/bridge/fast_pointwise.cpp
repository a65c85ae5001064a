// Pointwise operators of the fast lane.
#include "fast.h"

#include <ATen/ops/add_meta.h>
#include <ATen/ops/add_ops.h>

namespace torch_fl::fast {
namespace {

namespace ops = at::_ops;
namespace meta = at::meta;

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  pointwise<ops::add_Tensor, ops::add__Tensor, ops::add_out, meta::structured_add_Tensor>(m);
}

}  // namespace
}  // namespace torch_fl::fast
