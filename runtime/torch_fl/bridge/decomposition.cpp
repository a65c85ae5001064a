#include "decomposition.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include <c10/util/irange.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/tensor_memoryformats.h>

namespace torch_fl {
namespace {

namespace py = pybind11;

// Null: there is none. The GIL is held; entries live for ever.
PyObject* find(const c10::OperatorHandle& op) {
  static auto& known = *new std::unordered_map<c10::OperatorName, PyObject*>;
  const auto place = known.find(op.operator_name());
  if (place != known.end()) return place->second;
  const c10::OperatorName& name = op.operator_name();
  py::object found = py::module_::import("torch_fl.decompositions").attr("find")(name.name, name.overload_name);
  return known[name] = found.is_none() ? nullptr : found.release().ptr();
}

// The dispatcher keeps dtypes, layouts and memory formats as numbers.
py::object to_python(const c10::IValue& value, const c10::Argument& argument) {
  c10::TypePtr type = argument.real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  if (value.isInt()) {
    switch (type->kind()) {
      case c10::TypeKind::ScalarTypeType:
        return py::reinterpret_borrow<py::object>(
            reinterpret_cast<PyObject*>(torch::getTHPDtype(value.toScalarType())));
      case c10::TypeKind::LayoutType:
        return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(torch::getTHPLayout(value.toLayout())));
      case c10::TypeKind::MemoryFormatType:
        return py::reinterpret_borrow<py::object>(torch::utils::getTHPMemoryFormat(value.toMemoryFormat()));
      default:
        break;
    }
  }
  return torch::jit::toPyObject(value);
}

bool is_default(const c10::IValue& value, const c10::Argument& argument) {
  const std::optional<c10::IValue>& standard = argument.default_value();
  if (!standard.has_value()) return false;
  if (standard->isNone() || value.isNone()) return standard->isNone() && value.isNone();
  return !value.isTensor() && !value.isTensorList() && !value.isOptionalTensorList() && value == *standard;
}

}  // namespace

bool has_decomposition(const c10::OperatorHandle& op) {
  if (!Py_IsInitialized()) return false;
  py::gil_scoped_acquire gil;
  return find(op) != nullptr;
}

void run_decomposition(const c10::OperatorHandle& op, c10::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const std::vector<c10::Argument>& arguments = schema.arguments();
  const std::vector<c10::IValue> values(stack->end() - static_cast<std::ptrdiff_t>(arguments.size()), stack->end());
  py::gil_scoped_acquire gil;

  // Defaults are left out: many decompositions take fewer arguments than the operator has.
  size_t positional = 0;
  for (const auto i : c10::irange(arguments.size()))
    if (!arguments[i].kwarg_only() && !is_default(values[i], arguments[i])) positional = i + 1;
  py::tuple args(positional);
  py::dict kwargs;
  for (const auto i : c10::irange(arguments.size())) {
    if (i < positional)
      args[i] = to_python(values[i], arguments[i]);
    else if (arguments[i].kwarg_only() && !is_default(values[i], arguments[i]))
      kwargs[arguments[i].name().c_str()] = to_python(values[i], arguments[i]);
  }

  py::object out;
  try {
    out = py::reinterpret_borrow<py::object>(find(op))(*args, **kwargs);
  } catch (py::error_already_set& raised) {
    TORCH_CHECK_NOT_IMPLEMENTED(!raised.matches(PyExc_NotImplementedError) && !raised.matches(PyExc_TypeError),
                                raised.what());
    throw;
  }

  const std::vector<c10::Argument>& results = schema.returns();
  TORCH_CHECK_NOT_IMPLEMENTED(results.size() < 2 || (py::isinstance<py::sequence>(out) && py::len(out) == results.size()),
                              "the decomposition of ", schema.operator_name(), " does not give ", results.size(),
                              " results");
  torch::jit::drop(*stack, arguments.size());
  for (const auto i : c10::irange(results.size())) {
    const c10::AliasInfo* alias = results[i].alias_info();
    const auto original = std::find_if(arguments.begin(), arguments.end(), [&](const c10::Argument& argument) {
      return alias != nullptr && argument.alias_info() != nullptr && *argument.alias_info() == *alias;
    });
    if (original != arguments.end()) {
      stack->push_back(values[static_cast<size_t>(original - arguments.begin())]);
      continue;
    }
    const py::object one = results.size() == 1 ? out : py::object(out[py::int_(i)]);
    stack->push_back(torch::jit::toIValue(one, results[i].type()));
  }
}

}  // namespace torch_fl
