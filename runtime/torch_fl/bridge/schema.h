// What an operator's schema says of its arguments, and the tensors in them.
#pragma once
#include <algorithm>
#include <optional>

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

namespace torch_fl {

inline bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// Running statistics, which batch norm writes in training and whose schema doesn't say so.
inline bool is_written_silently(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments, size_t i) {
  if (schema.name() != "aten::native_batch_norm") return false;
  const size_t running_mean = 3, running_var = 4, training = 5;
  return (i == running_mean || i == running_var) && arguments[training].toBool();
}

inline bool writes_arguments(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(), is_written);
}

// The index of the argument that the result is; none for a result of its own.
inline std::optional<size_t> argument_behind(const c10::FunctionSchema& schema, size_t result) {
  const c10::AliasInfo* alias = schema.returns()[result].alias_info();
  if (alias == nullptr) return std::nullopt;
  for (size_t i = 0; i < schema.arguments().size(); i++) {
    const c10::AliasInfo* other = schema.arguments()[i].alias_info();
    if (other != nullptr && *other == *alias) return i;
  }
  return std::nullopt;
}

// Calls visit(tensor) for every tensor of a value that is defined.
template <class Visit>
void for_tensors_in(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector())
      if (tensor.defined()) visit(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const auto& tensor : value.toOptionalTensorVector())
      if (tensor.has_value() && tensor->defined()) visit(*tensor);
  }
}

// The value with what replace(tensor) gives in place of each tensor that is defined.
template <class Replace>
c10::IValue with_tensors(const c10::IValue& value, Replace&& replace) {
  auto of = [&](const at::Tensor& tensor) { return tensor.defined() ? at::Tensor(replace(tensor)) : tensor; };
  if (value.isTensor()) return of(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> out;
    for (const at::Tensor& tensor : value.toTensorVector()) out.push_back(of(tensor));
    return out;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> out;
    for (const auto& tensor : value.toOptionalTensorVector())
      out.push_back(tensor.has_value() ? std::optional<at::Tensor>(of(*tensor)) : std::nullopt);
    return out;
  }
  return value;
}

}  // namespace torch_fl
