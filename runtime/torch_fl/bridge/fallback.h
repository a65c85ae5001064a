// What becomes of an operator that no kernel of the device serves: generic tier, CPU tier, clear error.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "core/device.h"
#include "core/route.h"

namespace torch_fl {

// Computes the operator one tier further down: its arguments are on the stack, afterwards its results are. `reason`: why
// no native kernel serves this call, without full stop. Counts the step per operator and tier, warns of it once, and
// raises NotImplementedError where every tier that could serve is switched off or cannot.
void step_down(const c10::OperatorHandle& op, c10::Stack* stack, const char* reason);

enum class Tier { kGeneric, kCpu };

// One step down of one operator on one device, for its scope: raises NotImplementedError where the tier is switched off,
// warns unless it has before, counts, and at its end adds the bytes moved meanwhile by this thread.
class StepDown {
 public:
  StepDown(const char* op, Device& device, Tier tier, std::initializer_list<at::Tensor> tensors, const char* reason);
  ~StepDown();
  StepDown(const StepDown&) = delete;
  StepDown& operator=(const StepDown&) = delete;

 private:
  Counters& counters_;
  const uint64_t moved_before_;
};

}  // namespace torch_fl
