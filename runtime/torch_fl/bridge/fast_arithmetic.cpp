// The fast lane's arithmetic and selection of several tensors, or of tensors and numbers.
#include "fast.h"
#include "shape_functions.h"

#include <ATen/ops/add_meta.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_meta.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_meta.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/clamp_max_ops.h>
#include <ATen/ops/clamp_meta.h>
#include <ATen/ops/clamp_min_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/div_meta.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/floor_divide_ops.h>
#include <ATen/ops/lerp_meta.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/maximum_meta.h>
#include <ATen/ops/maximum_ops.h>
#include <ATen/ops/minimum_meta.h>
#include <ATen/ops/minimum_ops.h>
#include <ATen/ops/mul_meta.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/pow_meta.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/remainder_meta.h>
#include <ATen/ops/remainder_ops.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sub_meta.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/where_ops.h>

namespace torch_fl::fast {
namespace {

namespace ops = at::_ops;
namespace meta = at::meta;

using Clamp = Pointwise<ops::clamp, meta::structured_clamp>;
using Divide = Pointwise<ops::div_Tensor, meta::structured_div_Tensor>;
using DivideMode = Pointwise<ops::div_Tensor_mode, meta::structured_div_Tensor_mode>;
using Power = Pointwise<ops::pow_Tensor_Tensor, meta::structured_pow_Tensor_Tensor>;
using PowerOfTensor = Pointwise<ops::pow_Tensor_Scalar, meta::structured_pow_Tensor_Scalar, ops::pow_Tensor_Tensor>;
using Remainder = Pointwise<ops::remainder_Tensor, meta::structured_remainder_Tensor>;

using Mode = std::optional<std::string_view>;

// ---- Division without a rounding mode is true division -----------------------------------------------------------

at::Tensor div_mode(const at::Tensor& self, const at::Tensor& other, Mode mode) {
  return mode.has_value() ? DivideMode::functional(self, other, mode) : Divide::functional(self, other);
}

at::Tensor& div_mode_inplace(at::Tensor& self, const at::Tensor& other, Mode mode) {
  return mode.has_value() ? DivideMode::inplace<ops::div__Tensor_mode>(self, other, mode)
                          : Divide::inplace<ops::div__Tensor>(self, other);
}

at::Tensor& div_mode_out(const at::Tensor& self, const at::Tensor& other, Mode mode, at::Tensor& out) {
  return mode.has_value() ? DivideMode::out<ops::div_out_mode>(self, other, mode, out)
                          : Divide::out<ops::div_out>(self, other, out);
}

at::Tensor floor_divide(const at::Tensor& self, const at::Tensor& other) {
  return DivideMode::functional(self, other, "floor");
}

at::Tensor& floor_divide_inplace(at::Tensor& self, const at::Tensor& other) {
  return DivideMode::inplace<ops::div__Tensor_mode>(self, other, "floor");
}

at::Tensor& floor_divide_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  return DivideMode::out<ops::div_out_mode>(self, other, "floor", out);
}

// ---- Clamping on one side ----------------------------------------------------------------------------------------

at::Tensor clamp_min(const at::Tensor& self, const at::Scalar& min) {
  return Clamp::functional(self, min, std::nullopt);
}
at::Tensor& clamp_min_inplace(at::Tensor& self, const at::Scalar& min) {
  return Clamp::inplace<ops::clamp_>(self, min, std::nullopt);
}
at::Tensor& clamp_min_out(const at::Tensor& self, const at::Scalar& min, at::Tensor& out) {
  return Clamp::out<ops::clamp_out>(self, min, std::nullopt, out);
}
at::Tensor clamp_max(const at::Tensor& self, const at::Scalar& max) {
  return Clamp::functional(self, std::nullopt, max);
}
at::Tensor& clamp_max_inplace(at::Tensor& self, const at::Scalar& max) {
  return Clamp::inplace<ops::clamp_>(self, std::nullopt, max);
}
at::Tensor& clamp_max_out(const at::Tensor& self, const at::Scalar& max, at::Tensor& out) {
  return Clamp::out<ops::clamp_out>(self, std::nullopt, max, out);
}

// ---- Numbers as the first operand --------------------------------------------------------------------------------

at::Tensor wrapped(const at::Scalar& number) {
  at::Tensor tensor = at::scalar_tensor(number, at::TensorOptions().dtype(number.type()));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

at::Tensor pow_scalar(const at::Scalar& self, const at::Tensor& exponent) {
  return Power::functional(wrapped(self), exponent);
}
at::Tensor& pow_scalar_out(const at::Scalar& self, const at::Tensor& exponent, at::Tensor& out) {
  return Power::out<ops::pow_Tensor_Tensor_out>(wrapped(self), exponent, out);
}
at::Tensor remainder_scalar(const at::Scalar& self, const at::Tensor& other) {
  return Remainder::functional(wrapped(self), other);
}

// ---- A power of integers -----------------------------------------------------------------------------------------

void check_integer_power(const at::Tensor& self, const at::Scalar& exponent) {
  TORCH_CHECK(!c10::isIntegralType(self.scalar_type(), /*includeBool=*/true) ||
                  !exponent.isIntegral(/*includeBool=*/true) || exponent.toLong() >= 0,
              "Integers to negative integer powers are not allowed.");
}
at::Tensor pow_number(const at::Tensor& self, const at::Scalar& exponent) {
  check_integer_power(self, exponent);
  return PowerOfTensor::functional(self, exponent);
}
at::Tensor& pow_number_inplace(at::Tensor& self, const at::Scalar& exponent) {
  check_integer_power(self, exponent);
  return PowerOfTensor::inplace<ops::pow__Scalar>(self, exponent);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  pointwise<ops::add_Tensor, ops::add__Tensor, ops::add_out, meta::structured_add_Tensor>(m);
  pointwise<ops::sub_Tensor, ops::sub__Tensor, ops::sub_out, meta::structured_sub_Tensor>(m);
  pointwise<ops::mul_Tensor, ops::mul__Tensor, ops::mul_out, meta::structured_mul_Tensor>(m);
  pointwise<ops::div_Tensor, ops::div__Tensor, ops::div_out, meta::structured_div_Tensor>(m);
  pointwise<ops::remainder_Tensor, ops::remainder__Tensor, ops::remainder_Tensor_out,
            meta::structured_remainder_Tensor>(m);
  pointwise<ops::pow_Tensor_Tensor, ops::pow__Tensor, ops::pow_Tensor_Tensor_out,
            meta::structured_pow_Tensor_Tensor>(m);
  pointwise<ops::maximum, None, ops::maximum_out, meta::structured_maximum>(m);
  pointwise<ops::minimum, None, ops::minimum_out, meta::structured_minimum>(m);
  pointwise<ops::clamp, ops::clamp_, ops::clamp_out, meta::structured_clamp>(m);
  pointwise<ops::where_self, None, ops::where_self_out, shape::Where>(m);
  pointwise<ops::addcmul, ops::addcmul_, ops::addcmul_out, meta::structured_addcmul>(m);
  pointwise<ops::addcdiv, ops::addcdiv_, ops::addcdiv_out, meta::structured_addcdiv>(m);
  pointwise<ops::lerp_Scalar, ops::lerp__Scalar, ops::lerp_Scalar_out, meta::structured_lerp_Scalar>(m);
  pointwise<ops::lerp_Tensor, ops::lerp__Tensor, ops::lerp_Tensor_out, meta::structured_lerp_Tensor>(m);

  m.impl("div.Tensor_mode", &div_mode);
  m.impl("div_.Tensor_mode", &div_mode_inplace);
  m.impl("div.out_mode", &div_mode_out);
  m.impl("floor_divide", &floor_divide);
  m.impl("floor_divide_.Tensor", &floor_divide_inplace);
  m.impl("floor_divide.out", &floor_divide_out);
  m.impl("clamp_min", &clamp_min);
  m.impl("clamp_min_", &clamp_min_inplace);
  m.impl("clamp_min.out", &clamp_min_out);
  m.impl("clamp_max", &clamp_max);
  m.impl("clamp_max_", &clamp_max_inplace);
  m.impl("clamp_max.out", &clamp_max_out);
  m.impl("pow.Tensor_Scalar", &pow_number);
  m.impl("pow_.Scalar", &pow_number_inplace);
  m.impl("pow.Tensor_Scalar_out", TORCH_FN((&PowerOfTensor::out<ops::pow_Tensor_Scalar_out>)));
  m.impl("pow.Scalar", &pow_scalar);
  m.impl("pow.Scalar_out", &pow_scalar_out);
  m.impl("remainder.Scalar_Tensor", &remainder_scalar);
}

}  // namespace
}  // namespace torch_fl::fast
