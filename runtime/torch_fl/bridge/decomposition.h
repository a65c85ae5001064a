// Decompositions of operators into others, in Python.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace torch_fl {

// Whether torch_fl.decompositions has one. Takes the GIL, and may import what it needs at first.
bool has_decomposition(const c10::OperatorHandle& op);

// Arguments on the stack become results. Throws what Python raises. NotImplementedError and TypeError, which say that
// the decomposition takes no such arguments, become c10::NotImplementedError.
void run_decomposition(const c10::OperatorHandle& op, c10::Stack* stack);

}  // namespace torch_fl
