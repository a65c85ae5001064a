// What Python sees of routing: the registry goes in, counters come out, the policy can be changed.
#include <array>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "convert.h"
#include "core/error.h"
#include "core/route.h"
#include "general.h"

namespace torch_fl {
namespace {

namespace py = pybind11;

// (name, ATen argument, kind, rule, type, optional, scalar, inplace, choices, absent); kind and rule by their number.
using SlotFields =
    std::tuple<std::string, std::string, int, int, int, bool, bool, bool, std::vector<std::string>, double>;

int add_operator_of(std::string name, std::string op_class, uint32_t revision, int n_types, std::vector<DtypeRow> rows,
                    const std::vector<SlotFields>& slots, const std::vector<int>& outs,
                    std::vector<std::string> free_arguments) {
  Operator entry;
  entry.name = std::move(name);
  entry.op_class = std::move(op_class);
  entry.revision = revision;
  entry.n_types = n_types;
  entry.rows = std::move(rows);
  entry.free_arguments = std::move(free_arguments);
  for (const auto& [slot_name, argument, kind, rule, type, optional, scalar, inplace, choices, absent] : slots)
    entry.slots.push_back({slot_name, argument, static_cast<SlotRule>(rule), static_cast<SlotKind>(kind),
                           TypeRef{static_cast<uint8_t>(type)}, optional, scalar, inplace, choices, absent});
  for (int type : outs) entry.outs.push_back(TypeRef{static_cast<uint8_t>(type)});
  return add_operator(std::move(entry)).id;
}

const Operator& known_operator(const std::string& name) {
  const Operator* op = find_operator(name.c_str());
  if (op == nullptr) raise(ErrorClass::kValue, name + " is not in the operator registry");
  return *op;
}

std::atomic<bool>& wish(const std::string& name) {
  if (name == "admit_fast") return policy.admit_fast;
  if (name == "deterministic") return policy.deterministic;
  if (name == "native") return policy.native;
  if (name == "generic") return policy.generic;
  if (name == "cpu") return policy.cpu;
  raise(ErrorClass::kValue, "there is no policy '" + name + "': admit_fast, deterministic, native, generic, cpu");
}

using Values = std::map<std::string, uint64_t>;

std::array<std::pair<const char*, std::atomic<uint64_t>*>, 8> named(Counters& counters) {
  return {{{"native", &counters.native},
           {"relayout", &counters.relayout},
           {"generic", &counters.generic},
           {"cpu", &counters.cpu},
           {"errors", &counters.errors},
           {"bytes_moved", &counters.bytes_moved},
           {"shape_hits", &counters.shape_hits},
           {"shape_misses", &counters.shape_misses}}};
}

// Operator -> counter -> value, for operators of which any is not 0.
std::map<std::string, Values> counters_by_name(int device) {
  std::map<std::string, Values> out;
  RouteTable& routes = device_at(device).routes();
  for (int id = 0; id < operator_count(); ++id) {
    Values values;
    uint64_t sum = 0;
    for (const auto& [name, counter] : named(routes.counters(operator_at(id)))) sum += values[name] = counter->load();
    if (sum != 0) out.emplace(operator_at(id).name, std::move(values));
  }
  return out;
}

void reset_counters(int device) {
  RouteTable& routes = device_at(device).routes();
  for (int id = 0; id < operator_count(); ++id)
    for (const auto& [name, counter] : named(routes.counters(operator_at(id)))) counter->store(0);
}

}  // namespace

void bind_routing(py::module_& m) {
  m.def("add_operator", torch::wrap_pybind_function(&add_operator_of), py::arg("name"), py::arg("op_class"),
        py::arg("revision"), py::arg("n_types"), py::arg("rows"), py::arg("slots"), py::arg("outs"),
        py::arg("free_arguments"));
  m.def("add_general_kernel", torch::wrap_pybind_function([](const std::string& name, bool replace) {
          return add_general_kernel(known_operator(name), replace);
        }),
        py::arg("operator"), py::arg("replace"));
  m.def("disable", torch::wrap_pybind_function_no_gil([](int device, const std::string& name, bool disabled) {
          device_at(device).routes().disable(known_operator(name), disabled);
        }),
        py::arg("device"), py::arg("operator"), py::arg("disabled"));
  m.def("claims", torch::wrap_pybind_function_no_gil([](int device, const std::string& name, DtypeRow row) {
          return device_at(device).routes().claims(known_operator(name), row);
        }),
        py::arg("device"), py::arg("operator"), py::arg("row"));
  m.def("policy", torch::wrap_pybind_function([](const std::string& name) { return wish(name).load(); }),
        py::arg("name"));
  m.def("set_policy",
        torch::wrap_pybind_function([](const std::string& name, bool value) { wish(name).store(value); }),
        py::arg("name"), py::arg("value"));
  m.def("reset_counters", torch::wrap_pybind_function_no_gil(&reset_counters), py::arg("device"));
  m.def("counters", torch::wrap_pybind_function_no_gil(&counters_by_name), py::arg("device"));
}

}  // namespace torch_fl
