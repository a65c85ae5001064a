// Decompositions of operators into others, in Python.
#pragma once
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

namespace torch_fl {

// Of one operator; lives for ever.
struct Decomposition {
  void* function;  // PyObject*
  bool writes;     // changes the arguments that the operator changes; else it gives what belongs into them
};

// Null: torch_fl.decompositions has none. Takes the GIL, and imports what it needs at first.
const Decomposition* find_decomposition(const c10::OperatorHandle& op);

// What it gives for the operator's arguments: the results, none in place of those that are arguments; or where it leaves
// writing to the caller, one tensor for each argument that is written. Throws what Python raises; NotImplementedError, by
// which it leaves the call to others, as c10::NotImplementedError.
std::vector<c10::IValue> run_decomposition(const Decomposition& decomposition, const c10::OperatorHandle& op,
                                           c10::ArrayRef<c10::IValue> arguments);

}  // namespace torch_fl
