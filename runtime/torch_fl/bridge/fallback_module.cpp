// What Python sees of the tiers below native kernels, and of the faults that tests provoke.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "convert.h"
#include "core/error.h"
#include "fallback.h"
#include "warning.h"

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

const fl_fault_api& fault_of(const Device& device) {
  if (device.vendor.fault == nullptr)
    raise(ErrorClass::kNotImplemented,
          "fl:" + std::to_string(device.index) + " (" + device.vendor.name + ") has no extension fl.fault");
  return *device.vendor.fault;
}

void delay_next(int index, int64_t stream_id, uint64_t nanoseconds) {
  Device& device = device_of(torch_device(index));
  Stream& stream = device.streams().by_id(stream_id);
  VendorError error;
  check(fault_of(device).delay_next(stream.handle(), nanoseconds, error.out()), error, stream, "delay_next");
}

void fail_next(int index, int64_t stream_id, bool lose_device) {
  Device& device = device_of(torch_device(index));
  Stream& stream = device.streams().by_id(stream_id);
  VendorError error;
  const fl_status status = lose_device ? FL_DEVICE_LOST : FL_ASYNC_FAILURE;
  check(fault_of(device).fail_next(stream.handle(), status, error.out()), error, stream, "fail_next");
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
  m.def("set_fallback_warning", [](py::object category) { set_fallback_warning(category.release().ptr()); },
        py::arg("category"));
  m.def("set_on_fallback", torch::wrap_pybind_function(&set_on_fallback), py::arg("name"));
  m.def("fallback_counters", torch::wrap_pybind_function(&fallback_counters));
  m.def("forget_steps_down", torch::wrap_pybind_function(&forget_steps_down));
  m.def("delay_next", torch::wrap_pybind_function_no_gil(&delay_next), py::arg("device"), py::arg("stream_id"),
        py::arg("nanoseconds"));
  m.def("fail_next", torch::wrap_pybind_function_no_gil(&fail_next), py::arg("device"), py::arg("stream_id"),
        py::arg("lose_device") = false);
}

}  // namespace torch_fl
