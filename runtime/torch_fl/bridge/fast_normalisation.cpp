// The fast lane's softmax and layer norm.
#include "fast.h"
#include "kept_dims.h"

#include <ATen/native/layer_norm.h>
#include <ATen/ops/_log_softmax_meta.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_softmax_meta.h>
#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>

namespace torch_fl::fast {
namespace {

namespace ops = at::_ops;
namespace meta = at::meta;

struct Softmax {
  static bool shortcut(const Operator& op, at::Tensor& out, const at::Tensor& self, int64_t dim, bool half_to_float) {
    const int64_t ndim = self.dim();
    if (half_to_float || dim >= ndim || dim < -ndim) return false;
    Device& device = device_of(self.device());
    out = empty_on(device, self.scalar_type(), self.sizes());
    Call call(op, device);
    call.tensor(0, self);
    call.integer(1, dim < 0 ? dim + ndim : dim);
    call.boolean(2, false);
    call.output(out);
    return call.submit_as_is();
  }

  static bool run(const Operator& op, const at::Tensor& out, bool given, const at::Tensor& self, int64_t dim,
                  bool half_to_float) {
    if (half_to_float) return false;  // not in the registry's revision
    Call call(op, common_device(op.name.c_str(), {&self, &out}));
    const Extent from(self);
    const Extent to(out);
    call.tensor(0, self, from.sizes, from.strides);
    call.integer(1, c10::maybe_wrap_dim(dim, self.dim()));
    call.boolean(2, half_to_float);
    give_output(call, out, given, to.sizes, to.strides);
    return call.submit();
  }
};

using LayerNorm = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

LayerNorm layer_norm(const at::Tensor& input, c10::IntArrayRef normalized_shape,
                     const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias, double eps) {
  const at::Tensor none;
  const at::Tensor& scale = weight.has_value() ? *weight : none;
  const at::Tensor& shift = bias.has_value() ? *bias : none;
  at::native::_check_layer_norm_inputs(input, normalized_shape, scale, shift);
  const Operator* op = entry_of<ops::native_layer_norm>();
  auto fits = [&](const at::Tensor& tensor) { return !tensor.defined() || tensor.scalar_type() == input.scalar_type(); };
  if (op != nullptr && fits(scale) && fits(shift)) {
    Device& device = common_device(op->name.c_str(), {&input, &scale, &shift});
    const c10::ScalarType statistics =
        c10::isReducedFloatingType(input.scalar_type()) ? at::kFloat : input.scalar_type();
    c10::SmallVector<int64_t, 8> leading(input.sizes().begin(), input.sizes().end());
    std::fill(leading.end() - int64_t(normalized_shape.size()), leading.end(), 1);
    LayerNorm outs{empty_on(device, input.scalar_type(), input.sizes()), empty_on(device, statistics, leading),
                   empty_on(device, statistics, leading)};
    Call call(*op, device);
    call.tensor(0, input);
    call.integers(1, normalized_shape);
    scale.defined() ? call.tensor(2, scale) : call.none(2);
    shift.defined() ? call.tensor(3, shift) : call.none(3);
    call.floating(4, eps);
    call.output(std::get<0>(outs));
    call.output(std::get<1>(outs));
    call.output(std::get<2>(outs));
    if (call.submit()) return outs;
  }
  const c10::Stack results = stepped_down<ops::native_layer_norm>(input, normalized_shape, weight, bias, eps);
  return {results[0].toTensor(), results[1].toTensor(), results[2].toTensor()};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<ops::_softmax, None, ops::_softmax_out, meta::structured__softmax, Softmax>(m);
  structured<ops::_log_softmax, None, ops::_log_softmax_out, meta::structured__log_softmax, Softmax>(m);
  m.impl("native_layer_norm", TORCH_FN(layer_norm));
}

}  // namespace
}  // namespace torch_fl::fast
