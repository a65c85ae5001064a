// Shape functions of pointwise operators for which torch has no structured one, in the same form.
#pragma once
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

namespace torch_fl::shape {

// Those that say themselves what the operands of the row's dtype promote to, since torch's iterator cannot know it.
struct Promoting : at::TensorIteratorBase {
  c10::ScalarType promoted = c10::ScalarType::Undefined;
};

// One operand; the output has its dtype, or that of its real part, or is an out= tensor that the latter can be cast to.
struct Abs : Promoting {
  void meta(const at::Tensor& self);
};

// One operand of any dtype; the output is bool, or an out= tensor of any dtype.
struct UnaryTest : Promoting {
  void meta(const at::Tensor& self);
};

// Two operands of any dtypes, 0-dimensional CPU tensors among them; the output is bool, or an out= tensor of any dtype.
struct Comparison : at::TensorIteratorBase {
  void meta(const at::Tensor& self, const at::Tensor& other) {
    build_borrowing_comparison_op(maybe_get_output(), self, other);
  }
};

struct Relu : at::TensorIteratorBase {
  void meta(const at::Tensor& self) {
    TORCH_CHECK(self.scalar_type() != at::kBool, "Boolean inputs not supported for relu");
    build_borrowing_unary_op(maybe_get_output(), self);
  }
};

// Torch's own has the operands in another order than the operator.
struct ThresholdBackward : at::TensorIteratorBase {
  void meta(const at::Tensor& grad_output, const at::Tensor& self, const at::Scalar& /*threshold*/) {
    build_borrowing_binary_op(maybe_get_output(), grad_output, self);
  }
};

struct Where : Promoting {
  void meta(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other);
};

}  // namespace torch_fl::shape
