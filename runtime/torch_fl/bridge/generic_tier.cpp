#include "generic_tier.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_resize_output.h>
#include <c10/util/irange.h>

#include "convert.h"
#include "decomposition.h"
#include "schema.h"
#include "trace_span.h"

namespace torch_fl {
namespace {

// One operator on its way through the generic tier in this thread.
class Attempt {
 public:
  Attempt(const c10::OperatorHandle& op, bool can_be_abandoned)
      : op(op), can_be_abandoned(can_be_abandoned), outer(innermost) {
    innermost = this;
  }
  ~Attempt() { innermost = outer; }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  const c10::OperatorHandle& op;
  bool can_be_abandoned;
  bool abandoned = false;
  Attempt* const outer;
  static thread_local Attempt* innermost;
};
thread_local Attempt* Attempt::innermost = nullptr;

bool is_underway(const c10::OperatorHandle& op) {
  for (Attempt* attempt = Attempt::innermost; attempt != nullptr; attempt = attempt->outer)
    if (attempt->op == op) return true;
  return false;
}

// The composite kernel of torch that serves the operator by way of others.
std::optional<c10::DispatchKey> composite_key(const c10::OperatorHandle& op) {
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd))
    return c10::DispatchKey::CompositeExplicitAutograd;
  // Operators that have a CPU kernel as well only hand their arguments to their own out= form here.
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional) &&
      !op.hasKernelForDispatchKey(c10::DispatchKey::CPU))
    return c10::DispatchKey::CompositeExplicitAutogradNonFunctional;
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd))
    return c10::DispatchKey::CompositeImplicitAutograd;
  return std::nullopt;
}

// Whether the operator can be computed anew after it has been computed in part: what it writes is nothing that it reads.
bool can_begin_again(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  std::vector<at::Tensor> read;
  std::vector<at::Tensor> written;
  for (const auto i : c10::irange(arguments.size())) {
    const c10::Argument& argument = schema.arguments()[i];
    if (is_written(argument) && !argument.is_out()) return false;
    for_tensors_in(arguments[i], [&](const at::Tensor& t) { (is_written(argument) ? written : read).push_back(t); });
  }
  return std::none_of(written.begin(), written.end(), [&](const at::Tensor& out) {
    return std::any_of(read.begin(), read.end(), [&](const at::Tensor& in) { return in.is_alias_of(out); });
  });
}

// Puts what a decomposition gave into the arguments that the operator writes; false, before the first, where one of them
// does not fit.
bool write(const std::vector<c10::Argument>& schema, c10::ArrayRef<c10::IValue> arguments,
           c10::ArrayRef<c10::IValue> values) {
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs;
  for (const auto i : c10::irange(schema.size())) {
    if (!is_written(schema[i])) continue;
    const at::Tensor& target = arguments[i].toTensor();
    const at::Tensor& value = values[pairs.size()].toTensor();
    if (value.scalar_type() != target.scalar_type() || value.device() != target.device()) return false;
    if (!schema[i].is_out() && value.sizes() != target.sizes()) return false;
    if (at::has_internal_overlap(target) == at::MemOverlap::Yes) return false;  // torch's kernels know what that means
    pairs.emplace_back(target, value);
  }
  for (const auto& [target, value] : pairs) {
    at::_resize_output_(target, value.sizes(), target.device());
    target.copy_(value);
  }
  return true;
}

void replace_arguments(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments,
                       std::vector<c10::IValue>& values, c10::Stack* stack) {
  torch::jit::drop(*stack, arguments.size());
  for (const auto i : c10::irange(op.schema().returns().size())) {
    const auto original = argument_behind(op.schema(), i);
    stack->push_back(original.has_value() ? arguments[*original] : std::move(values[i]));
  }
}

bool on_device(c10::ArrayRef<c10::IValue> values, const Device& target) {
  return std::all_of(values.begin(), values.end(), [&](const c10::IValue& value) {
    return !value.isTensor() || !value.toTensor().defined() ||
           value.toTensor().device() == torch_device(target.index);
  });
}

// False: the decomposition does not take these arguments, or had to be abandoned, which `attempt` then says.
bool decompose(const Decomposition& decomposition, Attempt& attempt, c10::ArrayRef<c10::IValue> arguments,
               const Device& target, c10::Stack* stack) {
  const std::vector<c10::Argument>& schema = attempt.op.schema().arguments();
  const bool is_mutable = writes_arguments(attempt.op.schema());
  std::vector<c10::IValue> values;
  try {
    values = run_decomposition(decomposition, attempt.op, arguments);
  } catch (const c10::NotImplementedError&) {
    if (decomposition.writes && !attempt.abandoned) throw;
    return false;
  } catch (...) {
    if (!attempt.abandoned) throw;
    return false;
  }
  if (attempt.abandoned || !on_device(values, target)) return false;
  attempt.can_be_abandoned = false;
  if (is_mutable && !decomposition.writes && !write(schema, arguments, values)) return false;
  replace_arguments(attempt.op, arguments, values, stack);
  return true;
}

bool compose(c10::DispatchKey key, Attempt& attempt, c10::ArrayRef<c10::IValue> arguments, c10::Stack* stack) {
  const size_t below = stack->size() - arguments.size();
  try {
    attempt.op.callBoxedForDispatchKey(key, *stack);
    if (!attempt.abandoned) return true;
  } catch (const c10::NotImplementedError&) {
    if (!attempt.can_be_abandoned) throw;
  } catch (...) {
    if (!attempt.abandoned) throw;
  }
  stack->resize(below);
  for (const c10::IValue& argument : arguments) stack->push_back(argument);
  return false;
}

// ---- Attempts that failed ------------------------------------------------------------------------------------------

std::string signature(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments, const Device& target) {
  std::string out = c10::toString(op.operator_name()) + " fl:" + std::to_string(target.index);
  for (const c10::IValue& value : arguments) {
    if (value.isTensor() && value.toTensor().defined())
      out += std::string(" ") + c10::toString(value.toTensor().scalar_type());
  }
  return out;
}

std::mutex mutex;
std::unordered_set<std::string>& abandoned() {
  static auto& leaked = *new std::unordered_set<std::string>;
  return leaked;
}

}  // namespace

bool run_generic(const c10::OperatorHandle& op, c10::Stack* stack, Device& target) {
  if (is_underway(op)) return false;
  const std::optional<c10::DispatchKey> composite = composite_key(op);
  const Decomposition* decomposition = composite.has_value() ? nullptr : find_decomposition(op);
  if (!composite.has_value() && decomposition == nullptr) return false;
  const std::vector<c10::IValue> arguments(stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size()), stack->end());
  const std::string key = signature(op, arguments, target);
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (abandoned().count(key) != 0) return false;
  }

  const bool leaves_writing = decomposition != nullptr && !decomposition->writes;
  const bool is_random = op.hasTag(at::Tag::nondeterministic_seeded);
  Attempt attempt(op, !is_random && (leaves_writing || can_begin_again(op.schema(), arguments)));
  TraceSpan span(target, "generic tier");
  const bool served = composite.has_value() ? compose(*composite, attempt, arguments, stack)
                                            : decompose(*decomposition, attempt, arguments, target, stack);
  if (attempt.abandoned) {
    std::lock_guard<std::mutex> lock(mutex);
    abandoned().insert(key);
  }
  return served;
}

void abandon_generic() {
  for (Attempt* attempt = Attempt::innermost; attempt != nullptr; attempt = attempt->outer) {
    if (!attempt->can_be_abandoned) continue;
    attempt->abandoned = true;
    TORCH_CHECK_NOT_IMPLEMENTED(false, "an operator within ", attempt->op.operator_name(), " would leave the device");
  }
}

void forget_abandoned() {
  std::lock_guard<std::mutex> lock(mutex);
  abandoned().clear();
}

}  // namespace torch_fl
