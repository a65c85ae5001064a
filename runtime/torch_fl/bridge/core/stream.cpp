#include "stream.h"

#include <algorithm>
#include <utility>

#include "event_pool.h"
#include "fork.h"
#include "profile.h"
#include "wait.h"

namespace torch_fl {

void (*check_signals)() = nullptr;

namespace {

fl_status create_stream(const Device& device, int32_t priority, fl_stream* out, VendorError& error) {
  fl_stream_create_args args = {sizeof args, FL_KIND_STREAM_CREATE_ARGS, nullptr, priority, 0};
  return device.vendor.stream.create(device.handle, &args, out, error.out());
}

// A stream of the vendor that is destroyed again unless it is kept: of two threads that make one, one may be too late.
class Made {
 public:
  Made(const Device& device, int32_t priority) : device_(device) {
    refuse_forked();
    VendorError error;
    fl_status status = create_stream(device, priority, &stream_, error);
    check(status, error, device, [&] { return "stream_create with priority " + std::to_string(priority); });
  }
  ~Made() {
    if (stream_ != nullptr) device_.vendor.stream.destroy(stream_, nullptr);
  }
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;
  fl_stream keep() { return std::exchange(stream_, nullptr); }

 private:
  const Device& device_;
  fl_stream stream_ = nullptr;
};

}  // namespace

Stream::Stream(Device& device_, int64_t id_, int32_t priority_, fl_stream handle)
    : device(device_), id(id_), priority(priority_), handle_(handle) {}

bool Stream::query() {
  VendorError error;
  fl_status status = device.vendor.stream.query(handle(), error.out());
  if (status == FL_NOT_READY) return false;
  check(status, error, *this, [&] { return "query of stream " + std::to_string(id); });
  return true;
}

fl_status Stream::wait(VendorError& error) {
  NotedWait noted(device);
  const fl_stream_api& api = device.vendor.stream;
  fl_stream stream = handle();
  fl_status status = api.sync(stream, kSliceNs, error.out());
  if (status != FL_TIMEOUT) return status;
  if (check_signals != nullptr) check_signals();

  // From here on by an event: a second sync would wait for what other threads have submitted since, and so on.
  EventPool& events = device.streams().events();
  struct Taken {
    EventPool& pool;
    fl_event event = nullptr;
    ~Taken() {
      if (event != nullptr) pool.give_back(event, false);
    }
  } taken{events};
  status = events.take(false, &taken.event, error);
  if (status == FL_OK) status = device.vendor.event.record(taken.event, stream, error.out());
  if (status == FL_OK) {
    return wait_in_slices([&](uint64_t slice) { return device.vendor.event.sync(taken.event, slice, error.out()); });
  }
  // The stream has failed by now, or there are no more events.
  return wait_in_slices([&](uint64_t slice) { return api.sync(stream, slice, error.out()); });
}

void Stream::synchronize() {
  VendorError error;
  check(wait(error), error, *this, [&] { return "synchronize of stream " + std::to_string(id); });
}

void Stream::drain() {
  VendorError error;
  fl_status status = wait(error);
  // A failed stream and a lost device run nothing any more.
  if (status == FL_ASYNC_FAILURE || status == FL_DEVICE_LOST) return;
  check(status, error, *this, [&] { return "waiting for stream " + std::to_string(id); });
}

bool Stream::renew() noexcept {
  if (forked()) return false;
  const fl_stream_api& api = device.vendor.stream;
  fl_stream failed = handle();
  if (api.query(failed, nullptr) != FL_ASYNC_FAILURE) return false;
  // A failed stream runs no operation any more [FL-ERROR-004], so the new one's may use its memory at once. That host
  // tasks still run is no hazard to it; seeing them out keeps their order where that does not take for ever.
  api.sync(failed, 1'000'000'000, nullptr);
  VendorError error;
  fl_stream fresh = nullptr;
  if (create_stream(device, priority, &fresh, error) != FL_OK) return false;
  if (handle_.compare_exchange_strong(failed, fresh, std::memory_order_acq_rel)) return true;
  api.destroy(fresh, nullptr);  // another thread was here before
  return false;
}

StreamSet::StreamSet(Device& device) : device_(device), events_(std::make_unique<EventPool>(device)) {}
StreamSet::~StreamSet() = default;

Stream& StreamSet::add_locked(int32_t priority, fl_stream handle) {
  int64_t id = static_cast<int64_t>(streams_.size());
  streams_.push_back(std::make_unique<Stream>(device_, id, priority, handle));
  return *streams_.back();
}

Stream& StreamSet::standard() {
  Stream* known = standard_.load(std::memory_order_acquire);
  if (__builtin_expect(known != nullptr, 1)) return *known;
  Made made(device_, 0);
  std::lock_guard<std::mutex> lock(mutex_);
  if (streams_.empty()) add_locked(0, made.keep());
  standard_.store(streams_[0].get(), std::memory_order_release);
  return *streams_[0];
}

Stream& StreamSet::create(int32_t priority) {
  standard();  // which has id 0
  Made made(device_, priority);
  std::lock_guard<std::mutex> lock(mutex_);
  return add_locked(priority, made.keep());
}

Stream& StreamSet::from_pool(int32_t priority) {
  standard();
  refuse_forked();
  priority = std::clamp(priority, device_.info.priority_greatest, device_.info.priority_least);
  auto ring_locked = [&]() -> Ring& {
    auto ring = std::find_if(rings_.begin(), rings_.end(), [&](const Ring& r) { return r.priority == priority; });
    return ring != rings_.end() ? *ring : *rings_.insert(ring, Ring{priority, 0, {}});
  };
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Ring& ring = ring_locked();
    if (ring.streams.size() == kPooled) return *ring.streams[ring.next++ % kPooled];
  }
  Made made(device_, priority);
  std::lock_guard<std::mutex> lock(mutex_);
  Ring& ring = ring_locked();
  if (ring.streams.size() == kPooled) return *ring.streams[ring.next++ % kPooled];
  ring.streams.push_back(&add_locked(priority, made.keep()));
  return *ring.streams.back();
}

Stream& StreamSet::by_id(int64_t id) {
  if (id == 0) return standard();
  refuse_forked();
  std::lock_guard<std::mutex> lock(mutex_);
  if (id > 0 && id < static_cast<int64_t>(streams_.size())) return *streams_[static_cast<size_t>(id)];
  raise(ErrorClass::kRuntime, "fl:" + std::to_string(device_.index) + " has no stream " + std::to_string(id) + ": " +
                                  std::to_string(streams_.size()) + " have been made, 0 the first");
}

std::vector<Stream*> StreamSet::all() {
  refuse_forked();
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Stream*> list;
  for (auto& stream : streams_) list.push_back(stream.get());
  return list;
}

}  // namespace torch_fl
