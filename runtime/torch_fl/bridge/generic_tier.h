// Operators computed on the device by others: composite kernels of torch, and its decompositions in Python.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "core/device.h"

namespace torch_fl {

// True: the arguments on the stack have become results. False: there is no such kernel or decomposition, or it needs an
// operator that would itself have to leave the device; nothing has happened, but for memory and time.
//
// An attempt may be abandoned midway only if nobody can tell: it draws no random numbers and changes nothing that the
// operator reads. Others run to their end once begun, whatever tiers the operators in them need.
bool run_generic(const c10::OperatorHandle& op, c10::Stack* stack, Device& target);

// To be asked before an operator leaves the device. Throws where that happens within an attempt that can be abandoned:
// its operator then leaves the device as a whole.
void abandon_generic();

// Attempts that had to be abandoned are not repeated for the same operator, device and dtypes until this is called.
void forget_abandoned();

}  // namespace torch_fl
