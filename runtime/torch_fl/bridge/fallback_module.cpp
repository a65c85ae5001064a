// What Python sees of the tiers below native kernels.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "core/error.h"
#include "fallback.h"

namespace torch_fl {
namespace {

namespace py = pybind11;

// (device, operator, generic, cpu, errors, bytes moved) of operators outside the registry.
std::vector<std::tuple<int, std::string, uint64_t, uint64_t, uint64_t, uint64_t>> fallback_counters() {
  std::vector<std::tuple<int, std::string, uint64_t, uint64_t, uint64_t, uint64_t>> out;
  for (const OutsideCount& each : outside_counts())
    out.emplace_back(each.device, each.op, each.generic, each.cpu, each.errors, each.bytes_moved);
  return out;
}

void set_on_fallback(const std::string& name) {
  if (name == "ignore")
    on_fallback = OnFallback::kIgnore;
  else if (name == "warn")
    on_fallback = OnFallback::kWarn;
  else if (name == "error")
    on_fallback = OnFallback::kError;
  else
    raise(ErrorClass::kValue, "on_fallback is 'ignore', 'warn' or 'error', not '" + name + "'");
}

}  // namespace

void bind_fallback(py::module_& m) {
  m.def("set_on_fallback", torch::wrap_pybind_function(&set_on_fallback), py::arg("name"));
  m.def("fallback_counters", torch::wrap_pybind_function(&fallback_counters));
  m.def("forget_steps_down", torch::wrap_pybind_function(&forget_steps_down));
}

}  // namespace torch_fl
