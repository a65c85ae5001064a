// Logical devices: one flat list fl:0, fl:1, ... over all vendors of the process.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "torch_fl/plugin.h"

namespace torch_fl {

class Pool;
class RouteTable;
class Stream;
class StreamSet;

// Torch counts devices in an int8_t.
constexpr int kMaxDevices = 64;

// A loaded plugin: full-width copies of its tables, so that nobody looks at struct sizes again.
struct Vendor {
  int index;  // in order of registration; equal for all devices of one plugin
  std::string name;
  std::string version;
  fl_device_api device;
  fl_memory_api memory;
  fl_stream_api stream;
  fl_event_api event;
  fl_kernel_api kernel;
  const fl_pinned_api* pinned;  // null where the plugin has no fl.pinned
  const fl_fault_api* fault;    // null where the plugin has no fl.fault
};

// One device, opened at registration and never closed. Immutable but for what its members guard themselves.
class Device {
 public:
  Device(int index, const Vendor& vendor, int vendor_index, fl_device handle, const fl_device_info& info);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const int index;  // N of fl:N
  const Vendor& vendor;
  const int vendor_index;  // what the vendor calls it: fl_tensor.device
  const fl_device handle;
  const fl_device_info info;
  const bool is_inline;  // info.execution_model == FL_EXEC_INLINE

  Pool& pool() noexcept { return *pool_; }
  StreamSet& streams() noexcept { return *streams_; }
  RouteTable& routes() noexcept { return *routes_; }

  // Waits for all work of the device; raises what any of its streams failed with, and renews those streams.
  void synchronize();

 private:
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<StreamSet> streams_;
  std::unique_ptr<RouteTable> routes_;
};

// Registration happens once, before any device is used, in the discovery hook or under the caller's lock; reading needs
// none. A root table that is registered already gives the same vendor again.
Vendor& add_vendor(const fl_plugin* root, const fl_pinned_api* pinned, const fl_fault_api* fault);
// Opens device `vendor_index` of the vendor with options ("key=value;..."), calls inspect(handle), reads the device's
// info and kernel table, appends it to the list and returns it. `inspect` is where the kernel table is judged before
// anything here relies on it. Raises with the vendor's text, or what `inspect` raised, where any of that fails; the
// device is closed again and the list unchanged then.
Device& add_device(Vendor& vendor, int vendor_index, const char* options,
                   const std::function<void(fl_device)>& inspect = {});
// Appends a place for a device that is there but must not be used (it does not open, its kernel table is malformed, it
// lacks the certificate that the user demands), so that the indices of those after it do not hang on its state.
// device(index) raises kRuntime with `reason`, device_list[index] stays null. Returns the index.
int add_unusable(const std::string& reason);

// Where devices come from: called once, by the first device_count() or device(); it calls add_vendor and add_device.
void set_discovery(void (*discover)());
// Runs discovery if it has not run; other threads wait for it meanwhile, see `blocking`. Raises what it raised: devices
// that it had added are closed, places it had made are gone, a later call tries again. Within discovery, calls of the
// thread that runs it return at once and see the devices added so far. In a child forked after discovery had begun:
// raises kRuntime "devices cannot be used in a forked child; use the 'spawn' start method"; there every call of the
// vendor's tables (kernels apart) is refused so, too.
void ensure_discovered();

// Runs wait(argument), which may take long, and may throw what check_signals throws. The bridge lets go of the GIL
// meanwhile if the thread has it: whoever is waited for may need it, for a discovery hook in Python. Set once; null:
// called directly.
extern void (*blocking)(void (*wait)(void*), void* argument);

int device_count();         // of places in the list, usable or not, after discovery
Device& device(int index);  // raises kRuntime "fl:7 does not exist: this process has 2 devices, fl:0 to fl:1"
// The unchecked look-up of hot paths, and what "for all devices" loops go through: null where a device is unusable,
// beyond device_count(), and in a forked child. Torch sets every index below device_count() as current device in threads
// of its own, where nothing catches an exception: set_current_device accepts an unusable one, its use raises.
extern Device* device_list[kMaxDevices];

}  // namespace torch_fl
