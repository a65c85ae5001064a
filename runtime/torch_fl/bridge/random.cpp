// Random numbers: pure functions of a generator's seed and of counters that no other call gets.
#include "fast.h"
#include "generator.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_dropout_ops.h>
#include <ATen/ops/normal_ops.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/uniform_ops.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros_like.h>

namespace torch_fl::fast {
namespace {

namespace ops = at::_ops;

using Generator = std::optional<at::Generator>;

// (two floating arguments, state) -> self
bool draw(const Operator* op, at::Tensor& self, double first, double second, const Generator& generator) {
  TORCH_CHECK(self.device().type() == kFl, "Expected a '", self.device().type(),  // the generator has led torch here
              "' device type for generator but found 'fl'");
  if (op == nullptr) return false;
  at::assert_no_internal_overlap(self);
  Call call(*op, device_of(self.device()));
  call.floating(0, first);
  call.floating(1, second);
  call.rng(2, generator);
  call.output(self);
  return call.submit();
}

at::Tensor& uniform_inplace(at::Tensor& self, double from, double to, Generator generator) {
  TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from, " > to=", to);
  if (self.is_complex()) {
    at::Tensor parts = at::view_as_real(self);
    uniform_inplace(parts, from, to, generator);
    return self;
  }
  if (draw(entry_of<ops::uniform>(), self, from, to, generator)) return self;
  stepped_down<ops::uniform_>(self, from, to, generator);
  return self;
}

at::Tensor& normal_inplace(at::Tensor& self, double mean, double std, Generator generator) {
  TORCH_CHECK(std >= 0.0, "normal expects std >= 0.0, but found std ", std);
  static const Operator* const op = find_operator("aten::normal_functional");  // at::_ops has no name for it
  if (draw(op, self, mean, std, generator)) return self;
  stepped_down<ops::normal_>(self, mean, std, generator);
  return self;
}

// ---- Means and deviations that are tensors: drawn standard normal, then moved --------------------------------------

void check_deviations(const at::Tensor& std) {
  TORCH_CHECK(!std.is_complex(), "normal expects standard deviation to be non-complex");
  TORCH_CHECK(std.numel() == 0 || std.min().item<double>() >= 0, "normal expects all elements of std >= 0.0");
}

at::Tensor& normal_mean_out(const at::Tensor& mean, double std, Generator generator, at::Tensor& out) {
  TORCH_CHECK(std >= 0.0, "normal expects std >= 0.0, but found std ", std);
  fit_out(out, mean.sizes(), {}, out.options());
  return normal_inplace(out, 0, std, generator).add_(mean);
}

at::Tensor& normal_std_out(double mean, const at::Tensor& std, Generator generator, at::Tensor& out) {
  check_deviations(std);
  fit_out(out, std.sizes(), {}, out.options());
  return normal_inplace(out, 0, 1, generator).mul_(std).add_(mean);
}

at::Tensor& normal_both_out(const at::Tensor& mean, const at::Tensor& std, Generator generator, at::Tensor& out) {
  check_deviations(std);
  fit_out(out, at::infer_size(mean.sizes(), std.sizes()), {}, out.options());
  return normal_inplace(out, 0, 1, generator).mul_(std).add_(mean);
}

at::Tensor normal_mean(const at::Tensor& mean, double std, Generator generator) {
  at::Tensor out = at::empty_like(mean, c10::MemoryFormat::Contiguous);
  return normal_mean_out(mean, std, generator, out);
}

at::Tensor normal_std(double mean, const at::Tensor& std, Generator generator) {
  at::Tensor out = at::empty_like(std, c10::MemoryFormat::Contiguous);
  return normal_std_out(mean, std, generator, out);
}

at::Tensor normal_both(const at::Tensor& mean, const at::Tensor& std, Generator generator) {
  at::Tensor out = at::empty({0}, mean.options());
  return normal_both_out(mean, std, generator, out);
}

// ---- Dropout -------------------------------------------------------------------------------------------------------

using OutputAndMask = std::tuple<at::Tensor, at::Tensor>;

bool drop(OutputAndMask& outs, const at::Tensor& input, double p) {
  const Operator* op = entry_of<ops::native_dropout>();
  if (op == nullptr) return false;
  Device& device = device_of(input.device());
  // Channels last stays, as with any pointwise operator.
  outs = {at::empty_like(input), at::empty_like(input, input.options().dtype(at::kBool))};
  Call call(*op, device);
  call.tensor(0, input);
  call.floating(1, p);
  call.rng(2, std::nullopt);
  call.output(std::get<0>(outs));
  call.output(std::get<1>(outs));
  return call.submit();
}

OutputAndMask native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  // Without chance: nothing or everything is dropped.
  const auto mask = input.options().dtype(at::kBool);
  if (!train.value_or(true) || p == 0) return {at::clone(input), at::ones_like(input, mask)};
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  if (p == 1) return {at::zeros_like(input), at::zeros_like(input, mask)};
  OutputAndMask outs;
  if (drop(outs, input, p)) return outs;
  const c10::Stack results = stepped_down<ops::native_dropout>(input, p, train);
  return {results[0].toTensor(), results[1].toTensor()};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_dropout", &native_dropout);
  m.impl("uniform_", &uniform_inplace);
  m.impl("normal_", &normal_inplace);
  m.impl("normal.Tensor_float", &normal_mean);
  m.impl("normal.Tensor_float_out", &normal_mean_out);
  m.impl("normal.float_Tensor", &normal_std);
  m.impl("normal.float_Tensor_out", &normal_std_out);
  m.impl("normal.Tensor_Tensor", &normal_both);
  m.impl("normal.Tensor_Tensor_out", &normal_both_out);
}

}  // namespace
}  // namespace torch_fl::fast
