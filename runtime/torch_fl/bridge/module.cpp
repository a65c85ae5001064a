// The extension module: what Python sees of the bridge. Each area has a bind function of its own.
//
// Functions that may wait, or that may be the first to look for devices, run without the GIL; their failures become the
// Python exceptions that torch itself would raise.
#include <dlfcn.h>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "allocator.h"
#include "autograd_threads.h"
#include "convert.h"
#include "core/error.h"
#include "core/fork.h"
#include "generator.h"
#include "gil.h"
#include "pinned.h"

namespace torch_fl {

void bind_routing(pybind11::module_& m);   // routing_module.cpp
void bind_fallback(pybind11::module_& m);  // fallback_module.cpp
void bind_profile(pybind11::module_& m);   // profile.cpp

namespace {

namespace py = pybind11;

// Lambdas, or functions that are not noexcept: torch's wrappers know no others.
template <class F>
auto waiting(F&& function) {
  return torch::wrap_pybind_function_no_gil(std::forward<F>(function));
}
template <class F>
auto quick(F&& function) {
  return torch::wrap_pybind_function(std::forward<F>(function));
}

// ---- Vendors and devices -------------------------------------------------------------------------------------------

// Looks for devices in Python, which knows configuration, plugins and certificates.
void discover() {
  py::gil_scoped_acquire gil;
  py::module_::import("torch_fl.devices").attr("_discover")();
}

template <class T>
const T* table_at(uint64_t address) {
  return reinterpret_cast<const T*>(static_cast<uintptr_t>(address));
}

// Vendors by index; grows within discovery only, which one thread runs.
std::vector<Vendor*>& vendors() {
  static auto& leaked = *new std::vector<Vendor*>;
  return leaked;
}

// Python unloads what it has loaded when it ends, and tensors that end later still call their vendor.
void keep_loaded(const Vendor& vendor) {
  Dl_info library;
  if (dladdr(reinterpret_cast<void*>(vendor.device.open), &library) != 0)
    dlopen(library.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

int add_vendor_at(uint64_t root, uint64_t pinned, uint64_t fault) {
  Vendor& vendor =
      add_vendor(table_at<fl_plugin>(root), table_at<fl_pinned_api>(pinned), table_at<fl_fault_api>(fault));
  keep_loaded(vendor);
  if (static_cast<size_t>(vendor.index) == vendors().size()) vendors().push_back(&vendor);
  return vendor.index;
}

std::string hex(const uint8_t (&bytes)[16]) {
  std::string text;
  for (uint8_t byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

py::dict describe(const Device& device) {
  const fl_device_info& info = device.info;
  py::dict out;
  out["index"] = device.index;
  out["vendor"] = device.vendor.name;
  out["vendor_version"] = device.vendor.version;
  out["name"] = info.name;
  out["uuid"] = hex(info.uuid);
  out["numa_node"] = info.numa_node;
  out["execution_model"] = device.is_inline ? "inline" : "async";
  out["independent_streams"] = info.independent_streams != 0;
  out["priority_least"] = info.priority_least;
  out["priority_greatest"] = info.priority_greatest;
  out["address_model"] = info.address_model == FL_ADDRESS_LINEAR ? "linear" : "handle";
  out["alloc_align"] = info.alloc_align;
  out["max_align"] = info.max_align;
  out["alloc_may_wait"] = info.alloc_may_wait != 0;
  out["host_accessible"] = info.host_accessible != 0;
  out["total_memory"] = info.total_bytes;
  out["timer_resolution_ns"] = info.timer_resolution_ns;
  out["pinned_memory"] = device.vendor.pinned != nullptr;
  return out;
}

py::dict add_device_of(int vendor, int vendor_index, const std::string& options,
                       const std::optional<py::function>& inspect) {
  if (vendor < 0 || static_cast<size_t>(vendor) >= vendors().size())
    raise(ErrorClass::kIndex, "there is no vendor " + std::to_string(vendor));
  std::function<void(fl_device)> judge;
  if (inspect.has_value()) {
    judge = [&](fl_device handle) {
      py::gil_scoped_acquire gil;
      (*inspect)(reinterpret_cast<uintptr_t>(handle));
    };
  }
  const Device* made = nullptr;
  {
    ReleaseGil no_gil;  // a device may take its time to open
    made = &add_device(*vendors()[static_cast<size_t>(vendor)], vendor_index, options.c_str(), judge);
  }
  return describe(*made);
}

void bind_devices(py::module_& m) {
  m.def("add_vendor", quick(&add_vendor_at), py::arg("root"), py::arg("pinned"), py::arg("fault"));
  m.def("add_device", quick(&add_device_of), py::arg("vendor"), py::arg("vendor_index"), py::arg("options"),
        py::arg("inspect") = py::none());
  m.def("add_unusable", quick(&add_unusable), py::arg("reason"));
  m.def("ensure_discovered", waiting(&ensure_discovered));
  m.def("device_count", waiting(&device_count));
  m.def("device_info", quick([](int index) { return describe(device_at(index)); }), py::arg("device"));
  m.def("any_device_open", quick([] { return allocator().initialized(); }));
  m.def("in_bad_fork", &forked);
  m.def("current_device", &current_device);
  m.def("set_device", waiting(&set_current_device), py::arg("device"));
  m.def("exchange_device", waiting(&exchange_device), py::arg("device"));
  m.def("end_autograd_threads", waiting(&end_autograd_threads));
}

// ---- Streams -------------------------------------------------------------------------------------------------------

void bind_streams(py::module_& m) {
  m.def("current_stream", waiting([](int device) { return current_stream(device_at(device)).id; }), py::arg("device"));
  m.def("set_stream",
        waiting([](int device, int64_t stream) { set_current_stream(device_at(device).streams().by_id(stream)); }),
        py::arg("device"), py::arg("stream_id"));
  m.def("stream_priority",
        waiting([](int device, int64_t stream) { return device_at(device).streams().by_id(stream).priority; }),
        py::arg("device"), py::arg("stream_id"));
  m.def("stream_handle", waiting([](int device, int64_t stream) {
          return reinterpret_cast<uintptr_t>(device_at(device).streams().by_id(stream).handle());
        }),
        py::arg("device"), py::arg("stream_id"));
  m.def("synchronize", waiting([](int device) { device_at(device).synchronize(); }), py::arg("device"));
  m.def("host_waits", &host_waits);
}

// ---- Memory --------------------------------------------------------------------------------------------------------

// What torch's own statistics have no name for.
std::pair<uint64_t, uint64_t> cache_use(int device) {
  const PoolStats stats = device_at(device).pool().totals();
  return {stats.allocations, stats.cache_hits};
}

py::list memory_snapshot(int device) {
  std::vector<Block> blocks;
  {
    ReleaseGil no_gil;
    blocks = device_at(device).pool().snapshot();
  }
  py::list out;
  for (const Block& block : blocks) {
    py::dict entry;
    entry["segment"] = block.base;
    entry["segment_size"] = block.base_bytes;
    entry["offset"] = block.offset;
    entry["size"] = block.bytes;
    entry["requested_size"] = block.requested;
    entry["address"] = block.address;
    entry["allocated"] = block.allocated;
    entry["stream"] = block.stream->id;
    out.append(entry);
  }
  return out;
}

std::pair<size_t, size_t> mem_get_info(int device) {
  return allocator().getMemoryInfo(static_cast<c10::DeviceIndex>(device_at(device).index));
}

void bind_memory(py::module_& m) {
  m.def("cache_use", waiting(&cache_use), py::arg("device"));
  m.def("memory_snapshot", quick(&memory_snapshot), py::arg("device"));
  m.def("mem_get_info", waiting(&mem_get_info), py::arg("device"));
  m.def("empty_cache", waiting([] { allocator().emptyCache(); }));
  m.def("reset_peak_memory_stats", waiting([](int device) { device_at(device).pool().reset_peaks(); }),
        py::arg("device"));
  m.def("set_memory_fraction",
        waiting([](double fraction, int device) { device_at(device).pool().set_memory_fraction(fraction); }),
        py::arg("fraction"), py::arg("device"));
  m.def("empty_host_cache", waiting([] { pinned_allocator().empty_cache(); }));
}

// ---- Random numbers ------------------------------------------------------------------------------------------------

void bind_random(py::module_& m) {
  m.def("default_generator", quick(&default_generator), py::arg("device"));
  m.def("seed_default_generators", quick(&seed_default_generators), py::arg("seed"));
}

}  // namespace
}  // namespace torch_fl

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace torch_fl;
  set_discovery(&discover);
  check_signals = &run_signal_handlers;
  blocking = [](void (*wait)(void*), void* argument) {
    ReleaseGil no_gil;
    wait(argument);
  };
  bind_devices(m);
  bind_streams(m);
  bind_memory(m);
  bind_random(m);
  bind_routing(m);
  bind_fallback(m);
  bind_profile(m);
}
