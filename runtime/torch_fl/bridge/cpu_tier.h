// Operators computed on the host: arguments are copied there, results and changed arguments back.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "core/device.h"

namespace torch_fl {

// Null where the CPU tier can compute the operator, else why not, without full stop.
const char* why_not_on_cpu(const c10::OperatorHandle& op);

// Arguments on the stack become results. `target` is where new tensors belong. Aliases among the arguments, arguments
// that the operator changes, resizes or returns, lists, optional tensors and generators are what they would be natively.
// Where the device declares host_accessible, the CPU works in the device's memory and nothing is copied there.
// Raises what the operator raises; the arguments are unchanged then unless the operator changed them in shared memory.
void run_on_cpu(const c10::OperatorHandle& op, c10::Stack* stack, Device& target);

}  // namespace torch_fl
