#include <atomic>

#include "event_pool.h"
#include "profile.h"
#include "stream.h"
#include "wait.h"

namespace torch_fl {

namespace {
std::atomic<uint64_t> waits{0};
}

uint64_t host_waits() noexcept { return waits.load(std::memory_order_relaxed); }

Event::Event(Device& device_, bool timing_) : device(device_), timing(timing_) {}

Event::~Event() {
  if (handle_ != nullptr) device.streams().events().give_back(handle_, timing);
}

void Event::record(Stream& stream) {
  if (&stream.device != &device) {
    raise(ErrorClass::kRuntime, "an event of fl:" + std::to_string(device.index) +
                                    " cannot be recorded on a stream of fl:" + std::to_string(stream.device.index) +
                                    ": make one for that device");
  }
  EventPool& pool = device.streams().events();
  VendorError error;
  fl_event event = handle_;
  if (event == nullptr) check(pool.take(timing, &event, error), error, device, "event_create");
  fl_status status = device.vendor.event.record(event, stream.handle(), error.out());
  // A failed stream refuses the record but marks the event; any other refusal leaves the event as it was, and a fresh
  // one carries the generation of whoever had it before.
  if (status == FL_OK || status == FL_ASYNC_FAILURE) {
    handle_ = event;
  } else if (handle_ == nullptr) {
    pool.give_back(event, timing);
  }
  check(status, error, stream, [&] { return "record of an event on stream " + std::to_string(stream.id); });
}

void Event::block(Stream& stream) {
  if (handle_ == nullptr) return;
  if (&stream.device.vendor == &device.vendor) {
    VendorError error;
    fl_status status = device.vendor.stream.wait_event(stream.handle(), handle_, error.out());
    check(status, error, stream, [&] { return "wait of stream " + std::to_string(stream.id) + " for an event"; });
    return;
  }
  if (query()) return;
  waits.fetch_add(1, std::memory_order_relaxed);
  synchronize();
}

bool Event::query() {
  if (handle_ == nullptr) return true;
  VendorError error;
  fl_status status = device.vendor.event.query(handle_, error.out());
  if (status == FL_NOT_READY) return false;
  check(status, error, device, "query of an event");
  return true;
}

void Event::synchronize() {
  if (handle_ == nullptr) return;
  NotedWait noted(device);
  VendorError error;
  fl_status status =
      wait_in_slices([&](uint64_t slice) { return device.vendor.event.sync(handle_, slice, error.out()); });
  check(status, error, device, "synchronize of an event");
}

double Event::elapsed_ms(Event& end) {
  if (&device != &end.device) {
    raise(ErrorClass::kRuntime, "elapsed time between an event of fl:" + std::to_string(device.index) +
                                    " and one of fl:" + std::to_string(end.device.index) +
                                    ": both must be of one device");
  }
  if (!timing || !end.timing) {
    raise(ErrorClass::kRuntime, "elapsed time between events that were made without timing: pass enable_timing=True");
  }
  if (handle_ == nullptr || end.handle_ == nullptr) {
    raise(ErrorClass::kRuntime, "elapsed time between events of which one was never recorded");
  }
  VendorError error;
  int64_t ns = 0;
  fl_status status = device.vendor.event.elapsed(handle_, end.handle_, &ns, error.out());
  if (status == FL_NOT_READY) {
    raise(ErrorClass::kRuntime, "elapsed time between events of which one is pending: synchronize it first");
  }
  check(status, error, device, "elapsed time between two events");
  return static_cast<double>(ns) / 1e6;
}

}  // namespace torch_fl
