// What becomes of an operator that no kernel of the device serves: generic tier, CPU tier, clear error.
#pragma once
#include <atomic>
#include <cstdint>
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
inline constexpr const char* kNoKernel = "the device has no kernel for it";  // the usual reason

enum class Tier { kGeneric, kCpu };

// What a step down of any tier does besides: nothing, one warning per operator and tier, or raise NotImplementedError.
enum class OnFallback { kIgnore, kWarn, kError };
extern std::atomic<OnFallback> on_fallback;

// A step down of one operator on one device, for the scope in which the tier computes: warns unless it has before,
// counts, and at its end adds the bytes that this thread has moved meanwhile. The constructor raises NotImplementedError
// where the tier is switched off.
class StepDown {
 public:
  StepDown(const char* op, Device& device, Tier tier, c10::ArrayRef<at::Tensor> tensors, const char* reason);
  ~StepDown();
  StepDown(const StepDown&) = delete;
  StepDown& operator=(const StepDown&) = delete;

 private:
  Counters& counters_;
  const uint64_t moved_before_;
};

// Steps down of operators that the registry does not know, and that no RouteTable therefore counts.
struct OutsideCount {
  int device;
  std::string op;
  uint64_t generic, cpu, errors, bytes_moved;
};
std::vector<OutsideCount> outside_counts();

// As if nothing had stepped down yet: outside counts are 0, warnings come again, decompositions are tried again. The
// counters of RouteTables are their owner's to reset.
void forget_steps_down();

}  // namespace torch_fl
