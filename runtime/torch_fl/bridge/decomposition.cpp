#include "decomposition.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>

#include <c10/util/irange.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/tensor_memoryformats.h>

#include "gil.h"
#include "schema.h"

namespace torch_fl {
namespace {

namespace py = pybind11;

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

// Defaults are left out: many decompositions take fewer arguments than the operator has.
void convert(const std::vector<c10::Argument>& schema, c10::ArrayRef<c10::IValue> values, bool with_outs,
             py::tuple& args, py::dict& kwargs) {
  size_t positional = 0;
  for (const auto i : c10::irange(schema.size()))
    if (!schema[i].kwarg_only() && !is_default(values[i], schema[i])) positional = i + 1;
  args = py::tuple(positional);
  for (const auto i : c10::irange(schema.size())) {
    if (i < positional)
      args[i] = to_python(values[i], schema[i]);
    else if (schema[i].kwarg_only() && !is_default(values[i], schema[i]) && (with_outs || !schema[i].is_out()))
      kwargs[schema[i].name().c_str()] = to_python(values[i], schema[i]);
  }
}

}  // namespace

const Decomposition* find_decomposition(const c10::OperatorHandle& op) {
  if (!python_runs()) return nullptr;
  py::gil_scoped_acquire gil;
  static auto& known = *new std::unordered_map<c10::OperatorName, std::optional<Decomposition>>;  // under the GIL
  const c10::OperatorName& name = op.operator_name();
  auto place = known.find(name);
  if (place == known.end()) {
    py::object found = py::module_::import("torch_fl.decompositions").attr("find")(name.name, name.overload_name);
    std::optional<Decomposition> made;
    if (!found.is_none()) made = {py::object(found[py::int_(0)]).release().ptr(), py::cast<bool>(found[py::int_(1)])};
    place = known.emplace(name, made).first;
  }
  return place->second.has_value() ? &*place->second : nullptr;
}

std::vector<c10::IValue> run_decomposition(const Decomposition& decomposition, const c10::OperatorHandle& op,
                                           c10::ArrayRef<c10::IValue> arguments) {
  const c10::FunctionSchema& schema = op.schema();
  py::gil_scoped_acquire gil;
  py::object out;
  try {
    py::tuple args;
    py::dict kwargs;
    convert(schema.arguments(), arguments, decomposition.writes, args, kwargs);
    out = py::reinterpret_borrow<py::object>(static_cast<PyObject*>(decomposition.function))(*args, **kwargs);
  } catch (py::error_already_set& raised) {
    TORCH_CHECK_NOT_IMPLEMENTED(!raised.matches(PyExc_NotImplementedError), raised.what());
    throw;
  }

  const std::vector<c10::Argument>& takes = schema.arguments();
  const auto written = static_cast<size_t>(std::count_if(takes.begin(), takes.end(), is_written));
  const bool to_be_written = written != 0 && !decomposition.writes;
  const size_t n = to_be_written ? written : schema.returns().size();
  TORCH_CHECK_NOT_IMPLEMENTED(n < 2 || (py::isinstance<py::sequence>(out) && py::len(out) == n),
                              "the decomposition of ", schema.operator_name(), " does not give ", n, " results");
  std::vector<c10::IValue> values(n);
  for (const auto i : c10::irange(n)) {
    if (!to_be_written && argument_behind(schema, i).has_value()) continue;
    const c10::TypePtr type = to_be_written ? c10::TypePtr(c10::TensorType::get()) : schema.returns()[i].type();
    values[i] = torch::jit::toIValue(n == 1 ? out : py::object(out[py::int_(i)]), type);
  }
  return values;
}

}  // namespace torch_fl
