// How the arguments of an ATen schema fill the slots of a registry entry.
#pragma once
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

#include "core/operator.h"

namespace torch_fl {

enum class SchemaForm { kFunctional, kInplace, kOut };

struct Binding {
  const Operator* op;
  c10::OperatorHandle functional;  // whose Meta kernel says what the outputs are
  SchemaForm form;
  size_t n_arguments;              // of the functional schema: the first ones of every form
  std::vector<int> arguments;      // by slot: index of the argument, -1: absent
  std::vector<size_t> at_default;  // arguments without a slot that must be at their default
  bool has_dims;                   // slots name dimensions: a tensor without any then counts as one of one dimension
};

// The functional schema of the entry and its in-place and out= forms, as far as this torch has them. Empty, with the
// reason in `why_not`, where they don't fit the entry.
std::vector<std::pair<c10::OperatorHandle, Binding>> bindings_of(const Operator& op, std::string& why_not);

}  // namespace torch_fl
