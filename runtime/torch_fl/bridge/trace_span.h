// What torch.profiler shows of the bridge's own, beside the operators.
#pragma once
#include <optional>
#include <string>
#include <utility>

#include <ATen/record_function.h>

#include "core/device.h"

namespace torch_fl {

// A span "fl:0 CPU tier" within the operator that is underway, for as long as this lives. Where nobody observes spans
// in this thread, nothing is made.
class TraceSpan {
 public:
  TraceSpan(const Device& device, const char* what) {
    auto observers = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
    if (C10_LIKELY(!observers.has_value())) return;
    record_.emplace(std::move(*observers));
    record_->before("fl:" + std::to_string(device.index) + " " + what);
  }

 private:
  std::optional<at::RecordFunction> record_;
};

}  // namespace torch_fl
