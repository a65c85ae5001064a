#include "shape_functions.h"

#include <ATen/native/TypeProperties.h>

namespace torch_fl::shape {

void Abs::meta(const at::Tensor& self) {
  const at::Tensor& out = maybe_get_output();
  promoted = self.scalar_type();
  if (!self.is_complex() || (out.defined() && out.is_complex())) return build_borrowing_unary_op(out, self);
  const c10::ScalarType real = c10::toRealValueType(promoted);
  TORCH_CHECK(!out.defined() || c10::canCast(real, out.scalar_type()), "result type ", real,
              " can't be cast to the desired output type ", out.scalar_type());
  build(at::TensorIteratorConfig()
            .check_all_same_dtype(false)
            .declare_static_dtype(out.defined() ? out.scalar_type() : real)
            .declare_static_device(self.device())
            .add_borrowed_output(out)
            .add_borrowed_const_input(self));
}

void UnaryTest::meta(const at::Tensor& self) {
  const at::Tensor& out = maybe_get_output();
  promoted = self.scalar_type();
  build(at::TensorIteratorConfig()
            .check_all_same_dtype(false)
            .declare_static_dtype(out.defined() ? out.scalar_type() : at::kBool)
            .declare_static_device(self.device())
            .add_borrowed_output(out)
            .add_borrowed_const_input(self));
}

void Where::meta(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other) {
  const at::Tensor& out = maybe_get_output();
  promoted = at::native::result_type(
      at::native::update_result_type_state(other, at::native::update_result_type_state(self, {})));
  TORCH_CHECK(!out.defined() || out.scalar_type() == promoted, "Expected out type to be ", promoted, " but got ",
              out.scalar_type());
  if (condition.scalar_type() == at::kByte) {
    TORCH_WARN_ONCE("where received a uint8 condition tensor. This behavior is deprecated and will be removed in a "
                    "future version of PyTorch. Use a boolean condition instead.");
  } else {
    TORCH_CHECK(condition.scalar_type() == at::kBool,
                "where expected condition to be a boolean tensor, but got a tensor with dtype ",
                condition.scalar_type());
  }
  build(at::TensorIteratorConfig()
            .check_all_same_dtype(false)
            .allow_cpu_scalars(true)
            .declare_static_dtype(promoted)
            .add_borrowed_output(out)
            .add_borrowed_const_input(condition)
            .add_borrowed_const_input(self)
            .add_borrowed_const_input(other));
}

}  // namespace torch_fl::shape
