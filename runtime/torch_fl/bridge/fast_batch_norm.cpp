// Batch norm, whose schema doesn't say that it writes the running statistics, and its gradients.
#include "fast.h"

#include <ATen/ops/native_batch_norm_backward_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>

namespace torch_fl::fast {
namespace {

namespace ops = at::_ops;

using Optional = std::optional<at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

const at::Tensor& or_none(const Optional& tensor) {
  static const auto& none = *new at::Tensor;
  return tensor.has_value() ? *tensor : none;
}

// What both directions check: one value of the row's statistics dtype per channel. Others step down.
class Channels {
 public:
  explicit Channels(const at::Tensor& input) : input_(input) {
    statistics_ = c10::isReducedFloatingType(input.scalar_type()) ? at::kFloat : input.scalar_type();
  }

  bool served() const { return input_.dim() >= 2 && input_.numel() > 0 && at::isFloatingType(input_.scalar_type()); }
  bool fits(const at::Tensor& tensor) const {
    return !tensor.defined() ||
           (tensor.dim() == 1 && tensor.size(0) == count() && tensor.scalar_type() == statistics_);
  }
  int64_t count() const { return input_.size(1); }
  // An output with one value per channel; one that nobody asked for has none.
  at::Tensor statistic(Device& device, bool wanted) const {
    return empty_on(device, statistics_, {wanted ? count() : 0});
  }

 private:
  const at::Tensor& input_;
  c10::ScalarType statistics_;
};

void give(Call& call, int slot, const at::Tensor& tensor) {
  tensor.defined() ? call.tensor(slot, tensor) : call.none(slot);
}

at::Tensor laid_out_like(Device& device, const at::Tensor& tensor) {
  at::Tensor out = empty_on(device, tensor.scalar_type(), tensor.sizes());
  const c10::MemoryFormat format = tensor.suggest_memory_format();
  if (format != c10::MemoryFormat::Contiguous) out.unsafeGetTensorImpl()->empty_tensor_restride(format);
  return out;
}

// ---- Forward -------------------------------------------------------------------------------------------------------

bool run_forward(Three& outs, const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                 const at::Tensor& running_mean, const at::Tensor& running_var, bool training, double momentum,
                 double eps) {
  const Operator* op = entry_of<ops::native_batch_norm>();
  const Channels channels(input);
  const bool running = running_mean.defined();
  if (op == nullptr || !channels.served() || running != running_var.defined() || (!training && !running)) return false;
  for (const at::Tensor* each : {&weight, &bias, &running_mean, &running_var})
    if (!channels.fits(*each)) return false;
  Device& device = common_device(op->name.c_str(), {&input, &weight, &bias, &running_mean, &running_var});
  outs = {laid_out_like(device, input), channels.statistic(device, training), channels.statistic(device, training)};
  const at::Tensor new_mean = channels.statistic(device, training && running);
  const at::Tensor new_var = channels.statistic(device, training && running);
  Call call(*op, device);
  call.tensor(0, input);
  give(call, 1, weight);
  give(call, 2, bias);
  give(call, 3, running_mean);
  give(call, 4, running_var);
  call.boolean(5, training);
  call.floating(6, momentum);
  call.floating(7, eps);
  call.output(std::get<0>(outs));
  call.output(std::get<1>(outs));
  call.output(std::get<2>(outs));
  call.output(new_mean);
  call.output(new_var);
  if (!call.submit()) return false;
  if (training && running) {
    running_mean.copy_(new_mean);
    running_var.copy_(new_var);
  }
  return true;
}

Three batch_norm(const at::Tensor& input, const Optional& weight, const Optional& bias, const Optional& running_mean,
                 const Optional& running_var, bool training, double momentum, double eps) {
  Three outs;
  if (run_forward(outs, input, or_none(weight), or_none(bias), or_none(running_mean), or_none(running_var), training,
                  momentum, eps))
    return outs;
  const c10::Stack results = stepped_down<ops::native_batch_norm>(input, weight, bias, running_mean, running_var,
                                                                  training, momentum, eps);
  return {results[0].toTensor(), results[1].toTensor(), results[2].toTensor()};
}

// ---- Backward ------------------------------------------------------------------------------------------------------

bool run_backward(Three& outs, const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& weight,
                  const at::Tensor& running_mean, const at::Tensor& running_var, const at::Tensor& save_mean,
                  const at::Tensor& save_invstd, bool train, double eps, const std::array<bool, 3>& wanted) {
  const Operator* op = entry_of<ops::native_batch_norm_backward>();
  const Channels channels(input);
  if (op == nullptr || !channels.served() || grad_out.sizes() != input.sizes() ||
      grad_out.scalar_type() != input.scalar_type())
    return false;
  // Statistics that play no part may be of any kind: not training, torch saves empty ones.
  const at::Tensor none;
  const at::Tensor& mean = train ? save_mean : running_mean;
  const at::Tensor& spread = train ? save_invstd : running_var;
  if (!mean.defined() || !spread.defined()) return false;
  for (const at::Tensor* each : {&weight, &mean, &spread})
    if (!channels.fits(*each)) return false;
  Device& device = common_device(op->name.c_str(), {&input, &grad_out, &weight, &mean, &spread});
  const at::Tensor grad_input =
      wanted[0] ? laid_out_like(device, input) : empty_on(device, input.scalar_type(), {0});
  const at::Tensor grad_weight = channels.statistic(device, wanted[1]);
  const at::Tensor grad_bias = channels.statistic(device, wanted[2]);
  Call call(*op, device);
  call.tensor(0, grad_out);
  call.tensor(1, input);
  give(call, 2, weight);
  give(call, 3, train ? none : mean);
  give(call, 4, train ? none : spread);
  give(call, 5, train ? mean : none);
  give(call, 6, train ? spread : none);
  call.boolean(7, train);
  call.floating(8, eps);
  call.output(grad_input);
  call.output(grad_weight);
  call.output(grad_bias);
  if (!call.submit()) return false;
  outs = {wanted[0] ? grad_input : none, wanted[1] ? grad_weight : none, wanted[2] ? grad_bias : none};
  return true;
}

Three batch_norm_backward(const at::Tensor& grad_out, const at::Tensor& input, const Optional& weight,
                          const Optional& running_mean, const Optional& running_var, const Optional& save_mean,
                          const Optional& save_invstd, bool train, double eps, std::array<bool, 3> output_mask) {
  Three outs;
  if (run_backward(outs, grad_out, input, or_none(weight), or_none(running_mean), or_none(running_var),
                   or_none(save_mean), or_none(save_invstd), train, eps, output_mask))
    return outs;
  const c10::Stack results = stepped_down<ops::native_batch_norm_backward>(
      grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask);
  return {results[0].toTensor(), results[1].toTensor(), results[2].toTensor()};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_batch_norm", TORCH_FN(batch_norm));
  m.impl("native_batch_norm_backward", TORCH_FN(batch_norm_backward));
}

}  // namespace
}  // namespace torch_fl::fast
