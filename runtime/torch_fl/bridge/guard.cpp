// Devices, streams and events as torch's generic code asks for them. No device is special: any number of them, of any
// vendors, each thread with a current one and a current stream on each.
#include <c10/core/DeviceCapability.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "allocator.h"
#include "compat.h"
#include "convert.h"
#include "core/fork.h"
#include "dtype.h"
#include "gil.h"

namespace torch_fl {
namespace {

Event& event_at(void* event) { return *static_cast<Event*>(event); }

// Stateless. Torch calls some of these with the GIL held although they wait or discover devices: those let go of it.
class FlGuardImpl final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kFl; }

  c10::Device exchangeDevice(c10::Device device) const override {
    return torch_device(exchange_device(device.has_index() ? device.index() : -1));
  }
  c10::Device getDevice() const override { return torch_device(current_device()); }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    try {
      setDevice(device);
    } catch (...) {  // it was the current one before, so it exists
    }
  }

  // Torch asks from destructors and from the start of its threads (at the first backward pass, for good), where nothing
  // may be raised: what went wrong with the search for devices is logged, and raised by the first use of one.
  c10::DeviceIndex deviceCount() const noexcept override {
    try {
      ReleaseGil no_gil;
      return static_cast<c10::DeviceIndex>(device_count());
    } catch (...) {
      if (!forked()) note_swallowed("the search for devices failed, and torch goes on without them");
      return 0;
    }
  }

  // The dtypes of which there may be tensors; which operators have native kernels for them is another matter.
  c10::DeviceCapability getDeviceCapability(c10::Device /*device*/) const override {
    c10::DeviceCapability capability;
#define FL_SET_DTYPE(ctype, name) \
  capability.capability_data.supported_scalar_types.has_##name = fl_dtype(c10::ScalarType::name) != FL_DTYPE_NONE;
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS(FL_SET_DTYPE)
#undef FL_SET_DTYPE
    return capability;
  }

  c10::Stream getStream(c10::Device device) const override { return torch_stream(current_stream(device_of(device))); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return torch_stream(device_of(device).streams().standard());
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    Device& owner = device_of(device);
    return torch_stream(owner.streams().from_pool(high_priority ? owner.info.priority_greatest : 0));
  }
  // From the pool, too: torch never says when it is done with a stream.
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return torch_stream(device_of(device).streams().from_pool(priority));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    Stream& next = stream_of(stream);
    Stream& former = current_stream(next.device);
    set_current_stream(next);
    return torch_stream(former);
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return stream_of(stream).handle(); }
  bool isStreamCapturing(const c10::Stream& /*stream*/) const FL_OVERRIDE_SINCE_2_12 { return false; }
  bool queryStream(const c10::Stream& stream) const override { return stream_of(stream).query(); }
  void synchronizeStream(const c10::Stream& stream) const override {
    ReleaseGil no_gil;
    stream_of(stream).synchronize();
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    ReleaseGil no_gil;
    device_at(index).synchronize();
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    allocator().recordStream(data, stream);
  }

  // BACKEND_DEFAULT is torch's word for an event that keeps time.
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex /*index*/,
              const c10::EventFlag flag) const override {
    Stream& on = stream_of(stream);
    if (*event == nullptr) *event = new Event(on.device, flag == c10::EventFlag::BACKEND_DEFAULT);
    event_at(*event).record(on);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    ReleaseGil no_gil;  // between vendors the calling thread waits
    event_at(event).block(stream_of(stream));
  }
  bool queryEvent(void* event) const override { return event == nullptr || event_at(event).query(); }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    ReleaseGil no_gil;
    event_at(event).synchronize();
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex /*index*/) const override {
    return event_at(start).elapsed_ms(event_at(end));
  }
  void destroyEvent(void* event, const c10::DeviceIndex /*index*/) const noexcept override {
    delete static_cast<Event*>(event);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, FlGuardImpl)

}  // namespace
}  // namespace torch_fl
