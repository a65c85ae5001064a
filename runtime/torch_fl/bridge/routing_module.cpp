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

namespace torch_fl {
namespace {

namespace py = pybind11;

// (name, ATen argument, kind, rule, type, optional, scalar, inplace, choices); kind and rule by their number.
using SlotFields = std::tuple<std::string, std::string, int, int, int, bool, bool, bool, std::vector<std::string>>;

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
  for (const auto& [slot_name, argument, kind, rule, type, optional, scalar, inplace, choices] : slots)
    entry.slots.push_back({slot_name, argument, static_cast<SlotRule>(rule), static_cast<SlotKind>(kind),
                           TypeRef{static_cast<uint8_t>(type)}, optional, scalar, inplace, choices});
  for (int type : outs) entry.outs.push_back(TypeRef{static_cast<uint8_t>(type)});
  return add_operator(std::move(entry)).id;
}

// op name -> [native, relayout, generic, cpu, errors, bytes_moved], for operators that were ever called.
std::map<std::string, std::array<uint64_t, 6>> counters_by_name(int device) {
  std::map<std::string, std::array<uint64_t, 6>> out;
  for (int id = 0; id < operator_count(); ++id) {
    const Operator& op = operator_at(id);
    const Counters& now = device_of(torch_device(device)).routes().counters(op);
    std::array<uint64_t, 6> values{now.native, now.relayout, now.generic, now.cpu, now.errors, now.bytes_moved};
    if (values != std::array<uint64_t, 6>{}) out.emplace(op.name, values);
  }
  return out;
}

// Both of them from the next call on, for all devices.
void set_tiers(bool native, bool generic, bool cpu) {
  policy.native = native;
  policy.generic = generic;
  policy.cpu = cpu;
}

void set_precision(const std::string& name) {
  if (name != "accurate" && name != "fast")
    raise(ErrorClass::kValue, "precision is 'accurate' or 'fast', not '" + name + "'");
  policy.admit_fast = name == "fast";
}

}  // namespace

void bind_routing(py::module_& m) {
  m.def("add_operator", torch::wrap_pybind_function(&add_operator_of), py::arg("name"), py::arg("op_class"), py::arg("revision"),
        py::arg("n_types"), py::arg("rows"), py::arg("slots"), py::arg("outs"), py::arg("free_arguments"));
  m.def("set_tiers", torch::wrap_pybind_function(&set_tiers), py::arg("native"), py::arg("generic"), py::arg("cpu"));
  m.def("set_precision", torch::wrap_pybind_function(&set_precision), py::arg("name"));
  m.def("counters", torch::wrap_pybind_function_no_gil(&counters_by_name), py::arg("device"));
}

}  // namespace torch_fl
