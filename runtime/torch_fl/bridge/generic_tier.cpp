#include "generic_tier.h"

#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/irange.h>

#include "decomposition.h"

namespace torch_fl {
namespace {

// One operator on its way through the generic tier in this thread.
struct Attempt {
  explicit Attempt(const c10::OperatorHandle& op, bool can_be_abandoned)
      : op(op), can_be_abandoned(can_be_abandoned), outer(innermost) {
    innermost = this;
  }
  ~Attempt() { innermost = outer; }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  const c10::OperatorHandle& op;
  const bool can_be_abandoned;
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

// Whether a second computation from the start gives what an uninterrupted first one would have given.
bool can_be_abandoned(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  if (op.hasTag(at::Tag::nondeterministic_seeded)) return false;
  const std::vector<c10::Argument>& schema = op.schema().arguments();
  for (const auto i : c10::irange(schema.size())) {
    const bool writes = schema[i].alias_info() != nullptr && schema[i].alias_info()->isWrite();
    if (!writes) continue;
    if (!schema[i].is_out() || !arguments[i].isTensor()) return false;
    // An out= that is no input besides may hold anything halfway.
    for (const auto k : c10::irange(schema.size())) {
      if (k == i) continue;
      if (arguments[k].isTensorList() || arguments[k].isOptionalTensorList()) return false;
      if (arguments[k].isTensor() && arguments[k].toTensor().defined() && arguments[i].toTensor().defined() &&
          arguments[k].toTensor().is_alias_of(arguments[i].toTensor()))
        return false;
    }
  }
  return true;
}

std::string signature(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments, const Device& target) {
  std::string out = c10::toString(op.operator_name()) + " fl:" + std::to_string(target.index);
  for (const c10::IValue& value : arguments) {
    if (value.isTensor() && value.toTensor().defined()) out += std::string(" ") + c10::toString(value.toTensor().scalar_type());
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
  if (!composite.has_value() && !has_decomposition(op)) return false;
  const size_t n_arguments = op.schema().arguments().size();
  const std::vector<c10::IValue> arguments(stack->end() - static_cast<std::ptrdiff_t>(n_arguments), stack->end());
  const std::string key = signature(op, arguments, target);
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (abandoned().count(key) != 0) return false;
  }

  const size_t below = stack->size() - n_arguments;
  Attempt attempt(op, can_be_abandoned(op, arguments));
  try {
    if (composite.has_value())
      op.callBoxedForDispatchKey(*composite, *stack);
    else
      run_decomposition(op, stack);
    if (!attempt.abandoned) return true;
  } catch (const c10::NotImplementedError&) {
    if (!attempt.can_be_abandoned) throw;
  } catch (...) {
    if (!attempt.abandoned) throw;
  }
  stack->resize(below);
  for (const c10::IValue& argument : arguments) stack->push_back(argument);
  std::lock_guard<std::mutex> lock(mutex);
  abandoned().insert(key);
  return false;
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
