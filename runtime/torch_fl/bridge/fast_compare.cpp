// The fast lane's comparisons, logic and bits of two tensors, or of a tensor and a number.
#include "fast.h"
#include "shape_functions.h"

#include <ATen/ops/bitwise_and_meta.h>
#include <ATen/ops/bitwise_and_ops.h>
#include <ATen/ops/bitwise_or_meta.h>
#include <ATen/ops/bitwise_or_ops.h>
#include <ATen/ops/bitwise_xor_meta.h>
#include <ATen/ops/bitwise_xor_ops.h>
#include <ATen/ops/eq_meta.h>
#include <ATen/ops/eq_ops.h>
#include <ATen/ops/ge_meta.h>
#include <ATen/ops/ge_ops.h>
#include <ATen/ops/gt_meta.h>
#include <ATen/ops/gt_ops.h>
#include <ATen/ops/le_meta.h>
#include <ATen/ops/le_ops.h>
#include <ATen/ops/logical_and_ops.h>
#include <ATen/ops/logical_or_ops.h>
#include <ATen/ops/lt_meta.h>
#include <ATen/ops/lt_ops.h>
#include <ATen/ops/ne_meta.h>
#include <ATen/ops/ne_ops.h>

namespace torch_fl::fast {
namespace {

namespace ops = at::_ops;
namespace meta = at::meta;

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  pointwise<ops::eq_Tensor, ops::eq__Tensor, ops::eq_Tensor_out, meta::structured_eq_Tensor>(m);
  pointwise<ops::ne_Tensor, ops::ne__Tensor, ops::ne_Tensor_out, meta::structured_ne_Tensor>(m);
  pointwise<ops::lt_Tensor, ops::lt__Tensor, ops::lt_Tensor_out, meta::structured_lt_Tensor>(m);
  pointwise<ops::le_Tensor, ops::le__Tensor, ops::le_Tensor_out, meta::structured_le_Tensor>(m);
  pointwise<ops::gt_Tensor, ops::gt__Tensor, ops::gt_Tensor_out, meta::structured_gt_Tensor>(m);
  pointwise<ops::ge_Tensor, ops::ge__Tensor, ops::ge_Tensor_out, meta::structured_ge_Tensor>(m);
  // Numbers have overloads of their own, which are the same rows.
  pointwise<ops::eq_Scalar, ops::eq__Scalar, ops::eq_Scalar_out, meta::structured_eq_Scalar, ops::eq_Tensor>(m);
  pointwise<ops::ne_Scalar, ops::ne__Scalar, ops::ne_Scalar_out, meta::structured_ne_Scalar, ops::ne_Tensor>(m);
  pointwise<ops::lt_Scalar, ops::lt__Scalar, ops::lt_Scalar_out, meta::structured_lt_Scalar, ops::lt_Tensor>(m);
  pointwise<ops::le_Scalar, ops::le__Scalar, ops::le_Scalar_out, meta::structured_le_Scalar, ops::le_Tensor>(m);
  pointwise<ops::gt_Scalar, ops::gt__Scalar, ops::gt_Scalar_out, meta::structured_gt_Scalar, ops::gt_Tensor>(m);
  pointwise<ops::ge_Scalar, ops::ge__Scalar, ops::ge_Scalar_out, meta::structured_ge_Scalar, ops::ge_Tensor>(m);

  pointwise<ops::logical_and, ops::logical_and_, ops::logical_and_out, shape::Comparison>(m);
  pointwise<ops::logical_or, ops::logical_or_, ops::logical_or_out, shape::Comparison>(m);
  pointwise<ops::bitwise_and_Tensor, ops::bitwise_and__Tensor, ops::bitwise_and_Tensor_out,
            meta::structured_bitwise_and_Tensor>(m);
  pointwise<ops::bitwise_or_Tensor, ops::bitwise_or__Tensor, ops::bitwise_or_Tensor_out,
            meta::structured_bitwise_or_Tensor>(m);
  pointwise<ops::bitwise_xor_Tensor, ops::bitwise_xor__Tensor, ops::bitwise_xor_Tensor_out,
            meta::structured_bitwise_xor_Tensor>(m);
}

}  // namespace
}  // namespace torch_fl::fast
