// The fast lane's pointwise operators of one tensor.
#include "fast.h"
#include "shape_functions.h"

#include <ATen/ops/abs_ops.h>
#include <ATen/ops/bitwise_not_meta.h>
#include <ATen/ops/bitwise_not_ops.h>
#include <ATen/ops/ceil_meta.h>
#include <ATen/ops/ceil_ops.h>
#include <ATen/ops/cos_meta.h>
#include <ATen/ops/cos_ops.h>
#include <ATen/ops/erf_meta.h>
#include <ATen/ops/erf_ops.h>
#include <ATen/ops/exp_meta.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/floor_meta.h>
#include <ATen/ops/floor_ops.h>
#include <ATen/ops/gelu_meta.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/isnan_ops.h>
#include <ATen/ops/log_meta.h>
#include <ATen/ops/log_ops.h>
#include <ATen/ops/logical_not_ops.h>
#include <ATen/ops/neg_meta.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/reciprocal_meta.h>
#include <ATen/ops/reciprocal_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/round_meta.h>
#include <ATen/ops/round_ops.h>
#include <ATen/ops/rsqrt_meta.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/sigmoid_meta.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/sign_meta.h>
#include <ATen/ops/sign_ops.h>
#include <ATen/ops/silu_meta.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/sin_meta.h>
#include <ATen/ops/sin_ops.h>
#include <ATen/ops/sqrt_meta.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/tanh_meta.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/trunc_meta.h>
#include <ATen/ops/trunc_ops.h>

namespace torch_fl::fast {
namespace {

namespace ops = at::_ops;
namespace meta = at::meta;

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  pointwise<ops::abs, ops::abs_, ops::abs_out, shape::Abs>(m);
  pointwise<ops::bitwise_not, ops::bitwise_not_, ops::bitwise_not_out, meta::structured_bitwise_not>(m);
  pointwise<ops::ceil, ops::ceil_, ops::ceil_out, meta::structured_ceil>(m);
  pointwise<ops::cos, ops::cos_, ops::cos_out, meta::structured_cos>(m);
  pointwise<ops::erf, ops::erf_, ops::erf_out, meta::structured_erf>(m);
  pointwise<ops::exp, ops::exp_, ops::exp_out, meta::structured_exp>(m);
  pointwise<ops::floor, ops::floor_, ops::floor_out, meta::structured_floor>(m);
  pointwise<ops::gelu, ops::gelu_, ops::gelu_out, meta::structured_gelu>(m);
  pointwise<ops::isnan, None, ops::isnan_out, shape::UnaryTest>(m);
  pointwise<ops::log, ops::log_, ops::log_out, meta::structured_log>(m);
  pointwise<ops::logical_not, ops::logical_not_, ops::logical_not_out, shape::UnaryTest>(m);
  pointwise<ops::neg, ops::neg_, ops::neg_out, meta::structured_neg>(m);
  pointwise<ops::reciprocal, ops::reciprocal_, ops::reciprocal_out, meta::structured_reciprocal>(m);
  pointwise<ops::relu, ops::relu_, ops::relu_out, shape::Relu>(m);
  pointwise<ops::round, ops::round_, ops::round_out, meta::structured_round>(m);
  pointwise<ops::rsqrt, ops::rsqrt_, ops::rsqrt_out, meta::structured_rsqrt>(m);
  pointwise<ops::sigmoid, ops::sigmoid_, ops::sigmoid_out, meta::structured_sigmoid>(m);
  pointwise<ops::sign, ops::sign_, ops::sign_out, meta::structured_sign>(m);
  pointwise<ops::silu, ops::silu_, ops::silu_out, meta::structured_silu>(m);
  pointwise<ops::sin, ops::sin_, ops::sin_out, meta::structured_sin>(m);
  pointwise<ops::sqrt, ops::sqrt_, ops::sqrt_out, meta::structured_sqrt>(m);
  pointwise<ops::tanh, ops::tanh_, ops::tanh_out, meta::structured_tanh>(m);
  pointwise<ops::trunc, ops::trunc_, ops::trunc_out, meta::structured_trunc>(m);
}

}  // namespace
}  // namespace torch_fl::fast
