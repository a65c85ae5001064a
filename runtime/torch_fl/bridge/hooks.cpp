// The rest of what torch asks a backend: whether it is there, its generators, its pinned memory, whose an address is.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "allocator.h"
#include "convert.h"
#include "core/error.h"
#include "generator.h"
#include "gil.h"
#include "pinned.h"

namespace torch_fl {
namespace {

// Stateless; set_current_device and its like accept every index below device_count().
struct FlHooks final : at::PrivateUse1HooksInterface {
  void init() const override {
    ReleaseGil no_gil;
    ensure_discovered();
  }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return deviceCount() > 0; }
  // Devices are opened where they are found and stay open. Looks for none.
  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    return index >= 0 && index < kMaxDevices && device_list[index] != nullptr;
  }

  c10::DeviceIndex deviceCount() const override { return c10::impl::getDeviceGuardImpl(kFl)->deviceCount(); }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_current_device(index); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(current_device()); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return static_cast<c10::DeviceIndex>(exchange_device(index));
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return exchangeDevice(index); }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<PhiloxGenerator>(device_at(index).index, c10::default_rng_seed_val);
  }

  c10::Device getDeviceFromPtr(void* data) const override {
    const Block* block = block_at(reinterpret_cast<uintptr_t>(data));
    if (block == nullptr) raise(ErrorClass::kValue, "this address belongs to no memory of an fl device");
    return torch_device(block->stream->device.index);
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  }
};

[[maybe_unused]] const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new FlHooks);  // never destroyed: torch asks from static destructors
  return true;
}();

}  // namespace
}  // namespace torch_fl
