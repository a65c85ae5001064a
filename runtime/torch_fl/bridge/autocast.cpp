// torch.autocast("fl"). The wrappers are boxed, one per policy: the operators under autocast are large ones, and a
// hundred unboxed instances would double the time to build the bridge.
#include <ATen/autocast_mode.h>  // expensive, but torch keeps its lists of operators nowhere else

#include "compat.h"
#include "convert.h"
#include "core/error.h"

namespace torch_fl {
namespace {

using at::autocast::cached_cast;
using c10::OperatorHandle;
using torch::jit::Stack;

// Visits every tensor argument of the call at the top of the stack; what `visit` returns takes its place.
template <class Visit>
void replace_tensors(const OperatorHandle& op, Stack& stack, Visit&& visit) {
  const size_t count = op.schema().arguments().size();
  for (size_t slot = 0; slot < count; ++slot) {
    c10::IValue& argument = torch::jit::peek(stack, slot, count);
    if (argument.isTensor()) {
      argument = visit(argument.toTensor());
    } else if (argument.isTensorList()) {
      auto list = argument.toTensorList().copy();
      for (size_t i = 0; i < list.size(); ++i) list.set(i, visit(list.get(i)));
      argument = std::move(list);
    } else if (argument.isList() && argument.toListRef().size() > 0) {
      auto list = argument.toList().copy();
      for (size_t i = 0; i < list.size(); ++i) {
        c10::IValue element = list.get(i);
        if (element.isTensor()) list.set(i, visit(element.toTensor()));
      }
      argument = std::move(list);
    }
  }
}

void cast_all(const OperatorHandle& op, Stack& stack, at::ScalarType type) {
  replace_tensors(op, stack, [&](const at::Tensor& tensor) { return cached_cast(type, tensor, kFl); });
}

bool first_is_eligible(const OperatorHandle& op, const Stack& stack) {
  const c10::IValue& first = torch::jit::peek(stack, 0, op.schema().arguments().size());
  return first.isTensor() && at::autocast::is_eligible(first.toTensor(), kFl);
}

void lower_precision_fp(const OperatorHandle& op, Stack& stack) {
  cast_all(op, stack, at::autocast::get_autocast_dtype(kFl));
  op.callBoxed(&stack);
}

void fp32(const OperatorHandle& op, Stack& stack) {
  cast_all(op, stack, at::kFloat);
  op.callBoxed(&stack);
}

// Operators that take the dtype of their result, which then also is that of their arithmetic.
void fp32_set_opt_dtype(const OperatorHandle& op, Stack& stack) {
  if (first_is_eligible(op, stack)) {
    const auto& arguments = op.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      c10::IValue& value = torch::jit::peek(stack, i, arguments.size());
      if (arguments[i].name() == "dtype" && value.isNone()) value = at::kFloat;
    }
  }
  op.callBoxed(&stack);
}

// norm: its overloads with and without a dtype differ.
void fp32_append_dtype(const OperatorHandle& op, Stack& stack) {
  if (!first_is_eligible(op, stack)) return op.callBoxed(&stack);
  const std::string& overload = op.schema().overload_name();
  const std::string target = overload == "Scalar" ? "ScalarOpt_dtype" : overload + "_dtype";
  stack.emplace_back(at::kFloat);
  c10::Dispatcher::singleton().findSchemaOrThrow("aten::norm", target.c_str()).callBoxed(&stack);
}

void promote(const OperatorHandle& op, Stack& stack) {
  at::ScalarType widest = at::autocast::get_autocast_dtype(kFl);
  replace_tensors(op, stack, [&](const at::Tensor& tensor) {
    if (tensor.defined()) widest = at::autocast::prioritize(widest, tensor, kFl);
    return tensor;
  });
  cast_all(op, stack, widest);
  op.callBoxed(&stack);
}

void refuse_binary_cross_entropy(const OperatorHandle& /*op*/, Stack& /*stack*/) {
  raise(ErrorClass::kRuntime,
        "binary_cross_entropy and torch.nn.BCELoss are unsafe under autocast: the logarithm of a float16 probability "
        "overflows. Use binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss without the sigmoid before it, "
        "or compute this loss in float32 under torch.autocast(\"fl\", enabled=False)");
}

template <void (*policy)(const OperatorHandle&, Stack&)>
void under_policy(const OperatorHandle& op, Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
  policy(op, *stack);
}

template <void (*policy)(const OperatorHandle&, Stack&)>
torch::CppFunction kernel() {
  return torch::CppFunction::makeFromBoxedFunction<&under_policy<policy>>();
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

// The lists have entries of the forms (operator) and (operator, overload).
#define FL_NAME_1(op) "aten::" #op
#define FL_NAME_2(op, overload) "aten::" #op "." #overload
#define FL_NAME_OF(_1, _2, which, ...) which
#define FL_NAME(...) FL_NAME_OF(__VA_ARGS__, FL_NAME_2, FL_NAME_1)(__VA_ARGS__)
#define FL_LOWER_PRECISION_FP(...) m.impl(FL_NAME(__VA_ARGS__), kernel<lower_precision_fp>());
#define FL_FP32(...) m.impl(FL_NAME(__VA_ARGS__), kernel<fp32>());
#define FL_FP32_SET_OPT_DTYPE(...) m.impl(FL_NAME(__VA_ARGS__), kernel<fp32_set_opt_dtype>());
#define FL_FP32_APPEND_DTYPE(function, name, ...) m.impl("aten::" name, kernel<fp32_append_dtype>());
#define FL_PROMOTE(...) m.impl(FL_NAME(__VA_ARGS__), kernel<promote>());

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(FL_LOWER_PRECISION_FP)
  AT_FORALL_FP32(FL_FP32)
  FL_FORALL_FP32_UNLISTED(FL_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(FL_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(FL_FP32_APPEND_DTYPE)
  AT_FORALL_PROMOTE(FL_PROMOTE)
  m.impl("aten::binary_cross_entropy", kernel<refuse_binary_cross_entropy>());
}

}  // namespace
}  // namespace torch_fl
