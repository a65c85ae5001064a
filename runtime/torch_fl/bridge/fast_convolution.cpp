// Convolution, whose shape function in torch is one in Python.
#include "fast.h"

#include <ATen/ops/convolution_backward_ops.h>
#include <ATen/ops/convolution_ops.h>

namespace torch_fl::fast {
namespace {

namespace ops = at::_ops;

using List = c10::SmallVector<int64_t, 3>;

// One entry per spatial dimension; a single one is repeated. False: another number of them.
bool expand(c10::IntArrayRef given, size_t spatial, List& out) {
  if (given.size() != 1 && given.size() != spatial) return false;
  for (size_t d = 0; d < spatial; ++d) out.push_back(given[given.size() == 1 ? 0 : d]);
  return true;
}

// What forward and backward have in common.
struct Geometry {
  const at::Tensor& input;
  const at::Tensor& weight;
  bool transposed;
  int64_t groups;
  List stride, padding, dilation, output_padding;

  // False: of no number of spatial dimensions that the operands have.
  bool expand_lists(c10::IntArrayRef strides, c10::IntArrayRef paddings, c10::IntArrayRef dilations,
                    c10::IntArrayRef output_paddings) {
    if (input.dim() < 3 || weight.dim() != input.dim()) return false;
    const size_t spatial = size_t(input.dim() - 2);
    return expand(strides, spatial, stride) && expand(paddings, spatial, padding) &&
           expand(dilations, spatial, dilation) && expand(output_paddings, spatial, output_padding);
  }

  int64_t out_channels() const { return transposed ? weight.size(1) * groups : weight.size(0); }

  // Sizes of the output; false where torch has something against the call.
  bool sizes(c10::SmallVector<int64_t, 5>& out) const {
    const int64_t expected = transposed ? weight.size(0) : weight.size(1) * groups;
    const bool divides = groups > 0 && weight.size(0) % groups == 0;
    if (!divides || input.size(1) != expected) return false;
    out = {input.size(0), out_channels()};
    for (size_t d = 0; d < stride.size(); ++d) {
      const int64_t size = input.size(int64_t(d) + 2);
      const int64_t kernel = dilation[d] * (weight.size(int64_t(d) + 2) - 1) + 1;
      if (stride[d] <= 0 || dilation[d] <= 0 || padding[d] < 0 || output_padding[d] < 0 || kernel <= 0) return false;
      const int64_t padded = size + 2 * padding[d];
      if (!transposed && padded < kernel) return false;
      if (transposed && output_padding[d] >= std::max(stride[d], dilation[d])) return false;
      out.push_back(transposed ? (size - 1) * stride[d] - 2 * padding[d] + kernel + output_padding[d]
                               : (padded - kernel) / stride[d] + 1);
      if (out.back() <= 0) return false;
    }
    return true;
  }

  // Torch gives channels last where the input or the weight has it.
  c10::MemoryFormat format() const {
    const c10::MemoryFormat of_input = input.suggest_memory_format();
    return of_input != c10::MemoryFormat::Contiguous ? of_input : weight.suggest_memory_format();
  }

  // A new tensor of these sizes in that format.
  at::Tensor laid_out(Device& device, c10::IntArrayRef sizes) const {
    at::Tensor out = empty_on(device, input.scalar_type(), sizes);
    if (format() != c10::MemoryFormat::Contiguous) out.unsafeGetTensorImpl()->empty_tensor_restride(format());
    return out;
  }

  // Into slots 3 to 8 of either direction.
  void give(Call& call) const {
    call.integers(3, stride);
    call.integers(4, padding);
    call.integers(5, dilation);
    call.boolean(6, transposed);
    call.integers(7, output_padding);
    call.integer(8, groups);
  }
};

// ---- Forward -------------------------------------------------------------------------------------------------------

bool run_forward(const Geometry& shape, const at::Tensor& bias, at::Tensor& out) {
  const Operator* op = entry_of<ops::convolution>();
  c10::SmallVector<int64_t, 5> sizes;
  if (op == nullptr || !shape.sizes(sizes)) return false;
  if (bias.defined() && (bias.dim() != 1 || bias.size(0) != shape.out_channels())) return false;
  Device& device = common_device(op->name.c_str(), {&shape.input, &shape.weight, &bias});
  out = shape.laid_out(device, sizes);
  Call call(*op, device);
  call.tensor(0, shape.input);
  call.tensor(1, shape.weight);
  bias.defined() ? call.tensor(2, bias) : call.none(2);
  shape.give(call);
  call.output(out);
  return call.submit();
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
                       c10::IntArrayRef output_padding, int64_t groups) {
  Geometry shape{input, weight, transposed, groups, {}, {}, {}, {}};
  at::Tensor out;
  if (shape.expand_lists(stride, padding, dilation, output_padding) &&
      run_forward(shape, bias.value_or(at::Tensor()), out))
    return out;
  return stepped_down<ops::convolution>(input, weight, bias, stride, padding, dilation, transposed, output_padding,
                                        groups)
      .back()
      .toTensor();
}

// ---- Backward ------------------------------------------------------------------------------------------------------

using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;  // of input, weight and bias; undefined: not wanted

bool run_backward(const Geometry& shape, const at::Tensor& grad_output, const std::array<bool, 3>& wanted,
                  Gradients& gradients) {
  const Operator* op = entry_of<ops::convolution_backward>();
  c10::SmallVector<int64_t, 5> sizes;
  if (op == nullptr || !shape.sizes(sizes) || grad_output.sizes() != c10::IntArrayRef(sizes)) return false;
  Device& device = common_device(op->name.c_str(), {&shape.input, &shape.weight, &grad_output});
  const at::Tensor unwanted = empty_on(device, shape.input.scalar_type(), {0});
  const at::Tensor outs[] = {
      wanted[0] ? shape.laid_out(device, shape.input.sizes()) : unwanted,
      wanted[1] ? shape.laid_out(device, shape.weight.sizes()) : unwanted,
      wanted[2] ? empty_on(device, shape.input.scalar_type(), shape.out_channels()) : unwanted,
  };
  Call call(*op, device);
  call.tensor(0, grad_output);
  call.tensor(1, shape.input);
  call.tensor(2, shape.weight);
  shape.give(call);
  for (const at::Tensor& out : outs) call.output(out);
  if (!call.submit()) return false;
  gradients = {wanted[0] ? outs[0] : at::Tensor(), wanted[1] ? outs[1] : at::Tensor(),
               wanted[2] ? outs[2] : at::Tensor()};
  return true;
}

Gradients convolution_backward(const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight,
                               at::OptionalIntArrayRef bias_sizes, c10::IntArrayRef stride, c10::IntArrayRef padding,
                               c10::IntArrayRef dilation, bool transposed, c10::IntArrayRef output_padding,
                               int64_t groups, std::array<bool, 3> output_mask) {
  Geometry shape{input, weight, transposed, groups, {}, {}, {}, {}};
  Gradients gradients;
  if (shape.expand_lists(stride, padding, dilation, output_padding) &&
      run_backward(shape, grad_output, output_mask, gradients))
    return gradients;
  const c10::Stack results =
      stepped_down<ops::convolution_backward>(grad_output, input, weight, bias_sizes, stride, padding, dilation,
                                              transposed, output_padding, groups, output_mask);
  return {results[0].toTensor(), results[1].toTensor(), results[2].toTensor()};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution", TORCH_FN(convolution));
  m.impl("convolution_backward", TORCH_FN(convolution_backward));
}

}  // namespace
}  // namespace torch_fl::fast
