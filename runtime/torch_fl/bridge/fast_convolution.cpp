// Convolution, whose shape function in torch is one in Python.
#include "fast.h"

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

struct Convolution {
  const at::Tensor& input;
  const at::Tensor& weight;
  const at::Tensor& bias;  // undefined: none
  List stride, padding, dilation, output_padding;
  bool transposed;
  int64_t groups;

  // Sizes of the output; false where torch has something against the call.
  bool sizes(c10::SmallVector<int64_t, 5>& out) const {
    const int64_t channels = transposed ? weight.size(1) * groups : weight.size(0);
    const int64_t expected = transposed ? weight.size(0) : weight.size(1) * groups;
    const bool divides = groups > 0 && weight.size(0) % groups == 0;
    if (!divides || input.size(1) != expected) return false;
    if (bias.defined() && (bias.dim() != 1 || bias.size(0) != channels)) return false;
    out = {input.size(0), channels};
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

  bool run(const Operator& op, at::Tensor& out) const {
    c10::SmallVector<int64_t, 5> shape;
    if (!sizes(shape)) return false;
    Device& device = common_device(op.name.c_str(), {&input, &weight, &bias});
    out = empty_on(device, input.scalar_type(), shape);
    if (format() != c10::MemoryFormat::Contiguous) out.unsafeGetTensorImpl()->empty_tensor_restride(format());
    Call call(op, device);
    call.tensor(0, input);
    call.tensor(1, weight);
    bias.defined() ? call.tensor(2, bias) : call.none(2);
    call.integers(3, stride);
    call.integers(4, padding);
    call.integers(5, dilation);
    call.boolean(6, transposed);
    call.integers(7, output_padding);
    call.integer(8, groups);
    call.output(out);
    return call.submit();
  }
};

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
                       c10::IntArrayRef output_padding, int64_t groups) {
  const Operator* op = entry_of<ops::convolution>();
  const at::Tensor none;
  Convolution call{input, weight, bias.has_value() ? *bias : none, {}, {}, {}, {}, transposed, groups};
  if (op != nullptr && input.dim() >= 3 && weight.dim() == input.dim()) {
    const size_t spatial = size_t(input.dim() - 2);
    at::Tensor out;
    if (expand(stride, spatial, call.stride) && expand(padding, spatial, call.padding) &&
        expand(dilation, spatial, call.dilation) && expand(output_padding, spatial, call.output_padding) &&
        call.run(*op, out))
      return out;
  }
  return stepped_down<ops::convolution>(input, weight, bias, stride, padding, dilation, transposed, output_padding,
                                        groups)
      .back()
      .toTensor();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("convolution", TORCH_FN(convolution)); }

}  // namespace
}  // namespace torch_fl::fast
