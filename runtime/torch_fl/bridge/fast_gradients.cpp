// The fast lane's gradients of pointwise operators and of softmax.
#include "fast.h"
#include "kept_dims.h"
#include "shape_functions.h"

#include <ATen/ops/_log_softmax_backward_data_meta.h>
#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_backward_data_meta.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/sigmoid_backward_meta.h>
#include <ATen/ops/sigmoid_backward_ops.h>
#include <ATen/ops/tanh_backward_meta.h>
#include <ATen/ops/tanh_backward_ops.h>
#include <ATen/ops/threshold_backward_ops.h>

namespace torch_fl::fast {
namespace {

namespace ops = at::_ops;
namespace meta = at::meta;

struct SoftmaxBackward {
  static bool run(const Operator& op, const at::Tensor& out, bool given, const at::Tensor& grad_output,
                  const at::Tensor& output, int64_t dim, at::ScalarType input_dtype) {
    if (input_dtype != output.scalar_type()) return false;  // half to float is not in the registry's revision
    Call call(op, common_device(op.name.c_str(), {&grad_output, &output, &out}));
    const Extent gradient(grad_output);
    const Extent result(output);
    const Extent to(out);
    call.tensor(0, grad_output, gradient.sizes, gradient.strides);
    call.tensor(1, output, result.sizes, result.strides);
    call.integer(2, c10::maybe_wrap_dim(dim, output.dim()));
    give_output(call, out, given, to.sizes, to.strides);
    return call.submit();
  }
};

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  pointwise<ops::threshold_backward, None, ops::threshold_backward_grad_input, shape::ThresholdBackward>(m);
  pointwise<ops::sigmoid_backward, None, ops::sigmoid_backward_grad_input, meta::structured_sigmoid_backward>(m);
  pointwise<ops::tanh_backward, None, ops::tanh_backward_grad_input, meta::structured_tanh_backward>(m);
  structured<ops::_softmax_backward_data, None, ops::_softmax_backward_data_out, meta::structured__softmax_backward_data,
             SoftmaxBackward>(m);
  structured<ops::_log_softmax_backward_data, None, ops::_log_softmax_backward_data_out,
             meta::structured__log_softmax_backward_data, SoftmaxBackward>(m);
}

}  // namespace
}  // namespace torch_fl::fast
