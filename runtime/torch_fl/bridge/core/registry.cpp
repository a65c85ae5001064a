// The vendors and devices of the process. Never destroyed: other threads may be using them while the process ends.
#include <algorithm>
#include <cstring>
#include <vector>

#include "device.h"
#include "error.h"
#include "fork.h"
#include "registry.h"
#include "route.h"

namespace torch_fl {

Device* device_list[kMaxDevices] = {};

namespace {

struct Place {
  std::unique_ptr<Device> device;
  std::string reason;  // why there is no device
};

struct Registry {
  std::vector<std::unique_ptr<Vendor>> vendors;
  std::vector<const fl_plugin*> roots;  // of the vendors
  std::vector<Place> places;
};

Registry& registry() {
  static Registry& leaked = *new Registry;
  return leaked;
}

// What the vendor's struct_size covers of a table; the rest stays null.
template <class Table>
Table full_width(const Table* table) {
  Table copy;
  std::memset(&copy, 0, sizeof copy);
  std::memcpy(&copy, table, std::min<size_t>(table->struct_size, sizeof copy));
  copy.struct_size = sizeof copy;
  return copy;
}

// Looks like a device while there is none yet, so that errors of opening can be raised as all others are.
std::string place_name(size_t index, const Vendor& vendor) {
  return "fl:" + std::to_string(index) + " (" + vendor.name + ")";
}

void check_opening(fl_status status, const VendorError& error, const std::string& place, const std::string& what) {
  if (status == FL_OK) return;
  std::string text = error.text();
  raise(ErrorClass::kRuntime, place + ": " + what + ": " + status_name(status) + (text.empty() ? "" : ": " + text));
}

// Closes the device again unless it is kept.
class Opened {
 public:
  Opened(Vendor& vendor, fl_device handle) : vendor_(vendor), handle_(handle) {}
  ~Opened() {
    if (handle_ != nullptr) vendor_.device.close(handle_, nullptr);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  void keep() { handle_ = nullptr; }

 private:
  Vendor& vendor_;
  fl_device handle_;
};

void check_room() {
  if (registry().places.size() < kMaxDevices) return;
  raise(ErrorClass::kRuntime, "there are more than " + std::to_string(kMaxDevices) +
                                  " devices: leave some out by the configuration of torch_fl");
}

}  // namespace

Vendor& add_vendor(const fl_plugin* root, const fl_pinned_api* pinned, const fl_fault_api* fault) {
  Registry& all = registry();
  for (size_t i = 0; i < all.roots.size(); i++) {
    if (all.roots[i] == root) return *all.vendors[i];
  }
  auto vendor = std::make_unique<Vendor>();
  vendor->index = static_cast<int>(all.vendors.size());
  vendor->name = root->name;
  vendor->version = root->version;
  vendor->device = full_width(root->device);
  vendor->memory = full_width(root->memory);
  vendor->stream = full_width(root->stream);
  vendor->event = full_width(root->event);
  vendor->kernel = full_width(root->kernel);
  vendor->pinned = pinned;
  vendor->fault = fault;
  all.roots.push_back(root);
  all.vendors.push_back(std::move(vendor));
  return *all.vendors.back();
}

Device& add_device(Vendor& vendor, int vendor_index, const char* options,
                   const std::function<void(fl_device)>& inspect) {
  Registry& all = registry();
  check_room();
  watch_devices();
  std::string place = place_name(all.places.size(), vendor);
  VendorError error;

  fl_device_open_args args = {sizeof args, FL_KIND_DEVICE_OPEN_ARGS, nullptr, options};
  fl_device handle = nullptr;
  check_opening(vendor.device.open(vendor_index, &args, &handle, error.out()), error, place,
                "device_open of the vendor's device " + std::to_string(vendor_index) + " with options '" +
                    (options != nullptr ? options : "") + "'");
  Opened opened(vendor, handle);
  if (inspect) inspect(handle);

  fl_device_info info;
  std::memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  info.kind = FL_KIND_DEVICE_INFO;
  check_opening(vendor.device.info(handle, &info, error.out()), error, place, "device_info");
  const fl_kernel_table* table = nullptr;
  check_opening(vendor.kernel.kernels(handle, &table, error.out()), error, place, "kernels");

  auto device = std::make_unique<Device>(static_cast<int>(all.places.size()), vendor, vendor_index, handle, info);
  device->routes().read(*table);
  all.places.push_back({std::move(device), ""});
  opened.keep();
  Device& added = *all.places.back().device;
  device_list[added.index] = &added;
  return added;
}

int add_unusable(const std::string& reason) {
  Registry& all = registry();
  check_room();
  all.places.push_back({nullptr, reason});
  return static_cast<int>(all.places.size()) - 1;
}

int place_count() { return static_cast<int>(registry().places.size()); }

void truncate_places(int count) {
  std::vector<Place>& places = registry().places;
  while (static_cast<int>(places.size()) > count) {
    Device* device = places.back().device.get();
    if (device != nullptr) {
      device_list[device->index] = nullptr;
      const Vendor& vendor = device->vendor;
      fl_device handle = device->handle;
      places.back().device.reset();
      vendor.device.close(handle, nullptr);
    }
    places.pop_back();
  }
}

void refuse_calls_of_all_vendors() {
  // Whoever looks a device up comes to device(), which raises: kernels' own functions cannot be replaced.
  std::fill(std::begin(device_list), std::end(device_list), nullptr);
  for (auto& vendor : registry().vendors) refuse_all_calls(*vendor);
}

int device_count() {
  ensure_discovered();
  return place_count();
}

Device& device(int index) {
  ensure_discovered();
  std::vector<Place>& places = registry().places;
  int count = place_count();
  if (index < 0 || index >= count) {
    std::string has = count == 0   ? "no devices; `torch-fl doctor` says why"
                      : count == 1 ? "1 device, fl:0"
                                   : std::to_string(count) + " devices, fl:0 to fl:" + std::to_string(count - 1);
    raise(ErrorClass::kRuntime, "fl:" + std::to_string(index) + " does not exist: this process has " + has);
  }
  if (places[index].device == nullptr) raise(ErrorClass::kRuntime, places[index].reason);
  return *places[index].device;
}

}  // namespace torch_fl
