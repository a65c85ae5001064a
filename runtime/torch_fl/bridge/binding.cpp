#include "binding.h"

#include <algorithm>

#include "schema.h"

namespace torch_fl {

namespace {

c10::OperatorName name_of(const Operator& op) {
  const size_t dot = op.name.find('.');
  return dot == std::string::npos ? c10::OperatorName(op.name, "")
                                  : c10::OperatorName(op.name.substr(0, dot), op.name.substr(dot + 1));
}

// Whether the arguments of `form` begin with those of the functional schema.
bool begins_like(const c10::FunctionSchema& form, const c10::FunctionSchema& functional) {
  const auto& a = form.arguments();
  const auto& b = functional.arguments();
  if (a.size() < b.size()) return false;
  return std::equal(b.begin(), b.end(), a.begin(), [](const c10::Argument& x, const c10::Argument& y) {
    return x.name() == y.name() && *x.type() == *y.type();
  });
}

bool is_inplace_form(const c10::FunctionSchema& form, const c10::FunctionSchema& functional) {
  if (form.arguments().size() != functional.arguments().size() || !begins_like(form, functional)) return false;
  for (size_t i = 0; i < form.arguments().size(); ++i)
    if (is_written(form.arguments()[i]) != (i == 0)) return false;
  return form.returns().size() == 1;
}

bool is_out_form(const c10::FunctionSchema& form, const c10::FunctionSchema& functional) {
  const size_t n = functional.arguments().size();
  if (form.arguments().size() != n + functional.returns().size() || !begins_like(form, functional)) return false;
  for (size_t i = 0; i < form.arguments().size(); ++i)
    if (is_written(form.arguments()[i]) != (i >= n)) return false;
  return true;
}

// All overloads of torch's operators, listed once: the dispatcher has no look-up by name alone.
std::vector<c10::OperatorHandle> overloads_of(const std::string& name) {
  static const std::vector<c10::OperatorName> all = c10::Dispatcher::singleton().getAllOpNames();
  std::vector<c10::OperatorHandle> out;
  for (const c10::OperatorName& each : all) {
    if (each.name != name) continue;
    if (auto handle = c10::Dispatcher::singleton().findSchema(each)) out.push_back(*handle);
  }
  return out;
}

bool names_dims(const Operator& op) {
  return std::any_of(op.slots.begin(), op.slots.end(), [](const Slot& slot) {
    return slot.rule == SlotRule::kDim || slot.rule == SlotRule::kDims;
  });
}

bool bind_slots(const Operator& op, const c10::FunctionSchema& schema, Binding& out, std::string& why_not) {
  std::vector<bool> used(schema.arguments().size(), false);
  for (const Slot& slot : op.slots) {
    const auto index = schema.argumentIndexWithName(slot.argument);
    if (!index.has_value() && !slot.optional) {
      why_not = "this torch has no argument '" + slot.argument + "' for its slot " + slot.name;
      return false;
    }
    if (index.has_value()) used[size_t(*index)] = true;
    out.arguments.push_back(index.has_value() ? *index : -1);
  }
  for (size_t i = 0; i < used.size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const auto& free = op.free_arguments;
    if (used[i] || std::find(free.begin(), free.end(), argument.name()) != free.end()) continue;
    if (argument.default_value().has_value()) {
      out.at_default.push_back(i);
    } else if (argument.type()->kind() != c10::TypeKind::TensorType) {  // a tensor gives the output its shape
      why_not = "this torch has an argument '" + argument.name() + "' that it has no slot for";
      return false;
    }
  }
  return true;
}

}  // namespace

std::vector<std::pair<c10::OperatorHandle, Binding>> bindings_of(const Operator& op, std::string& why_not) {
  const c10::OperatorName name = name_of(op);
  const auto functional = c10::Dispatcher::singleton().findSchema(name);
  if (!functional.has_value()) {
    why_not = "this torch has no such operator";
    return {};
  }
  const c10::FunctionSchema& schema = functional->schema();
  const bool gives_tensors = std::all_of(schema.returns().begin(), schema.returns().end(), [](const c10::Argument& r) {
    return r.type()->kind() == c10::TypeKind::TensorType;
  });
  if (writes_arguments(schema) || !gives_tensors || schema.returns().size() != op.outs.size()) {
    why_not = "this torch's schema is no function to as many tensors as it has outputs";
    return {};
  }
  Binding binding{&op, *functional, SchemaForm::kFunctional, schema.arguments().size(), {}, {}, names_dims(op)};
  if (!bind_slots(op, schema, binding, why_not)) return {};

  std::vector<std::pair<c10::OperatorHandle, Binding>> out{{*functional, binding}};
  for (const c10::OperatorHandle& handle : overloads_of(name.name + "_")) {
    if (!is_inplace_form(handle.schema(), schema)) continue;
    out.emplace_back(handle, binding);
    out.back().second.form = SchemaForm::kInplace;
  }
  for (const c10::OperatorHandle& handle : overloads_of(name.name)) {
    if (!is_out_form(handle.schema(), schema)) continue;
    out.emplace_back(handle, binding);
    out.back().second.form = SchemaForm::kOut;
  }
  return out;
}

}  // namespace torch_fl
