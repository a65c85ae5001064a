#include "fallback.h"

#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

#include "convert.h"
#include "core/error.h"
#include "core/profile.h"
#include "cpu_tier.h"
#include "dtype.h"
#include "generic_tier.h"
#include "schema.h"
#include "trace_span.h"
#include "transfer.h"
#include "warning.h"
#include "wording.h"

namespace torch_fl {

std::atomic<OnFallback> on_fallback{OnFallback::kWarn};

namespace {

// ---- Counters and warnings -----------------------------------------------------------------------------------------

std::mutex mutex;

struct Outside {
  std::unordered_map<std::string, std::unique_ptr<Counters>> by_device[kMaxDevices];
  std::unordered_set<std::string> warned;
};
Outside& outside() {
  static auto& leaked = *new Outside;
  return leaked;
}

Counters& counters_of(const std::string& op, Device& device) {
  if (const Operator* known = find_operator(op.c_str())) return device.routes().counters(*known);
  std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Counters>& counters = outside().by_device[device.index][op];
  if (counters == nullptr) counters = std::make_unique<Counters>();
  return *counters;
}

std::string wording(c10::ArrayRef<at::Tensor> tensors) {
  std::string out;
  for (const at::Tensor& tensor : tensors) {
    out += (out.empty() ? "" : ", ");
    const uint32_t dtype = fl_dtype(tensor.scalar_type());
    out += dtype != FL_DTYPE_NONE ? dtype_name(dtype) : c10::toString(tensor.scalar_type());
    out += c10::str(tensor.sizes());
  }
  return "(" + out + ")";
}

std::string name_of(const Device& device) {
  return "fl:" + std::to_string(device.index) + " (" + device.vendor.name + ")";
}

void warn_once(const std::string& op, const Device& device, Tier tier, c10::ArrayRef<at::Tensor> tensors,
               const char* reason) {
  if (on_fallback.load(std::memory_order_relaxed) != OnFallback::kWarn) return;
  const std::string key = op + (tier == Tier::kCpu ? " cpu" : " generic");
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!outside().warned.insert(key).second) return;
  }
  const char* place = tier == Tier::kCpu ? " is computed on the CPU: " : " is composed of other operators: ";
  try {
    warn_of_fallback(op + wording(tensors) + " on " + name_of(device) + place + reason +
                     ". This operator is not warned of again; torch_fl.counters() tells how often it happens.");
  } catch (...) {  // a filter makes an error of it: of each time, not of the first one
    std::lock_guard<std::mutex> lock(mutex);
    outside().warned.erase(key);
    throw;
  }
}

void count(std::atomic<uint64_t>& counter, uint64_t by = 1) { counter.fetch_add(by, std::memory_order_relaxed); }

// `tiers`: what became of each of them.
[[noreturn]] void raise_unserved(const std::string& op, Device& device, c10::ArrayRef<at::Tensor> tensors,
                                 const char* reason, const std::string& tiers) {
  count(counters_of(op, device).errors);
  raise(ErrorClass::kNotImplemented,
        op + wording(tensors) + " cannot be computed for " + name_of(device) + ": " + reason + "; " + tiers);
}

void refuse_if_error(const std::string& op, Device& device, c10::ArrayRef<at::Tensor> tensors, const char* reason) {
  if (on_fallback.load(std::memory_order_relaxed) != OnFallback::kError) return;
  raise_unserved(op, device, tensors, reason, "fallback.on_fallback is 'error'");
}

// ---- Arguments -----------------------------------------------------------------------------------------------------

std::vector<at::Tensor> tensors_of(c10::ArrayRef<c10::IValue> arguments) {
  std::vector<at::Tensor> out;
  for (const c10::IValue& value : arguments) for_tensors_in(value, [&](const at::Tensor& t) { out.push_back(t); });
  return out;
}

// Where the results belong: to the tensors' device, else to the one that was asked for.
Device& target_of(c10::ArrayRef<c10::IValue> arguments, c10::ArrayRef<at::Tensor> tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.device().type() == kFl) return device_of(tensor.device());
  }
  for (const c10::IValue& value : arguments) {
    if (value.isDevice() && value.toDevice().type() == kFl) return device_of(value.toDevice());
  }
  return device_at(-1);
}

void unserved_operator(const c10::OperatorHandle& op, c10::Stack* stack) {
  step_down(op, stack, "it is not an operator of the vendor interface");
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&unserved_operator>());
}

}  // namespace

StepDown::StepDown(const char* op, Device& device, Tier tier, c10::ArrayRef<at::Tensor> tensors, const char* reason)
    : counters_(counters_of(op, device)), moved_before_(bytes_moved()) {
  if (tier == Tier::kCpu) abandon_generic();
  refuse_if_error(op, device, tensors, reason);
  const bool allowed = (tier == Tier::kCpu ? policy.cpu : policy.generic).load(std::memory_order_relaxed);
  if (!allowed)
    raise_unserved(op, device, tensors, reason,
                   tier == Tier::kCpu ? "the CPU tier is switched off" : "the generic tier is switched off");
  warn_once(op, device, tier, tensors, reason);
  count(tier == Tier::kCpu ? counters_.cpu : counters_.generic);
  note_served(device, tier == Tier::kCpu ? ServedBy::kCpu : ServedBy::kGeneric);
}

StepDown::~StepDown() { count(counters_.bytes_moved, bytes_moved() - moved_before_); }

void step_down(const c10::OperatorHandle& op, c10::Stack* stack, const char* reason) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  const std::vector<at::Tensor> tensors = tensors_of(arguments);
  Device& target = target_of(arguments, tensors);
  const std::string name = c10::toString(op.operator_name());

  refuse_if_error(name, target, tensors, reason);

  const bool generic = policy.generic.load(std::memory_order_relaxed);
  if (generic && run_generic(op, stack, target)) {
    count(counters_of(name, target).generic);  // it has run, whatever becomes of the warning
    note_served(target, ServedBy::kGeneric);
    warn_once(name, target, Tier::kGeneric, tensors, reason);
    return;
  }
  abandon_generic();  // an enclosing attempt, whose operator has a CPU tier of its own
  const std::string why_not_generic =
      generic ? "other operators of the device do not add up to it; " : "the generic tier is switched off; ";
  if (const char* why_not = why_not_on_cpu(op))
    raise_unserved(name, target, tensors, reason, why_not_generic + "the CPU tier cannot: " + why_not);
  if (!policy.cpu.load(std::memory_order_relaxed))
    raise_unserved(name, target, tensors, reason, why_not_generic + "the CPU tier is switched off");
  StepDown step(name.c_str(), target, Tier::kCpu, tensors, reason);
  TraceSpan span(target, "CPU tier");
  run_on_cpu(op, stack, target);
}

std::vector<OutsideCount> outside_counts() {
  std::lock_guard<std::mutex> lock(mutex);
  std::vector<OutsideCount> out;
  for (int device = 0; device < kMaxDevices; device++) {
    for (const auto& [op, counters] : outside().by_device[device]) {
      out.push_back({device, op, counters->generic.load(), counters->cpu.load(), counters->errors.load(),
                     counters->bytes_moved.load()});
    }
  }
  return out;
}

void forget_steps_down() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    outside().warned.clear();
    // Counters stay where they are: a step down may be underway.
    for (auto& counters : outside().by_device) {
      for (auto& [op, each] : counters) {
        for (auto* counter : {&each->generic, &each->cpu, &each->errors, &each->bytes_moved}) counter->store(0);
      }
    }
  }
  forget_abandoned();
}

}  // namespace torch_fl
