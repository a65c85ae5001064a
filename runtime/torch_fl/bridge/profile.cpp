// Profiles: torch's dispatcher says when operators begin and end, in every thread, and only while a profile runs.
#include <mutex>
#include <tuple>

#include <ATen/record_function.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "core/profile.h"
#include "core/stream.h"
#include "gil.h"

namespace torch_fl {
namespace {

namespace py = pybind11;

// ---- Operators as torch reports them -------------------------------------------------------------------------------

// How many of the running profiles want the device to have completed each call before it ends.
std::atomic<int> synchronizing{0};

struct Observed final : at::ObserverContext {
  ProfiledCall call;
};

std::unique_ptr<at::ObserverContext> begin_call(const at::RecordFunction&) { return std::make_unique<Observed>(); }

// In a destructor of torch's: a failure of the stream stays for the user to see, and Ctrl-C comes again.
void complete(ProfiledCall& call) noexcept {
  try {
    ReleaseGil no_gil;
    call.add_wait([&] { current_stream(*call.device()).drain(); });
  } catch (...) {
    note_swallowed("waiting for an operator that is profiled");
  }
}

std::string name_of(const at::RecordFunction& function) {
  const auto name = function.operator_name();
  return name.has_value() ? c10::toString(*name) : std::string(function.name());
}

void end_call(const at::RecordFunction& function, at::ObserverContext* context) {
  if (context == nullptr) return;
  ProfiledCall& call = static_cast<Observed*>(context)->call;
  if (call.device() == nullptr) return;
  if (synchronizing.load(std::memory_order_relaxed) != 0 && call.served_by() != ServedBy::kHost) complete(call);
  call.finish(name_of(function));
}

// ---- What Python starts and reads ----------------------------------------------------------------------------------

std::mutex callback_mutex;
at::CallbackHandle callback = at::INVALID_CALLBACK_HANDLE;

void start_profile(bool synchronize) {
  std::lock_guard<std::mutex> lock(callback_mutex);
  if (running_profiles.load() == 0)
    callback = at::addGlobalCallback(
        at::RecordFunctionCallback(&begin_call, &end_call).scopes({at::RecordScope::FUNCTION}));
  running_profiles += 1;
  synchronizing += synchronize ? 1 : 0;
}

void stop_profile(bool synchronize) {
  std::lock_guard<std::mutex> lock(callback_mutex);
  synchronizing -= synchronize ? 1 : 0;
  running_profiles -= 1;
  if (running_profiles.load() == 0) at::removeCallback(callback);
}

using Row = std::tuple<int, std::string, int, std::vector<uint64_t>>;

std::vector<Row> profiled() {
  std::vector<Row> out;
  for (const Profiled& each : profiled_so_far()) {
    const Measured& sums = each.sums;
    out.emplace_back(each.device, each.op, static_cast<int>(each.served_by),
                     std::vector<uint64_t>{sums.calls, sums.host_ns, sums.wait_ns, sums.waits, sums.added_ns,
                                           sums.bytes_to_device, sums.bytes_to_host, sums.shape_hits,
                                           sums.shape_misses});
  }
  return out;
}

}  // namespace

void bind_profile(py::module_& m) {
  m.def("start_profile", torch::wrap_pybind_function_no_gil(&start_profile), py::arg("synchronize"));
  m.def("stop_profile", torch::wrap_pybind_function_no_gil(&stop_profile), py::arg("synchronize"));
  m.def("profiled", torch::wrap_pybind_function(&profiled));
}

}  // namespace torch_fl
