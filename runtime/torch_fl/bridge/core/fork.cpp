#include "fork.h"

#include <pthread.h>

#include <cstring>
#include <tuple>

#include "error.h"

namespace torch_fl {

std::atomic<bool> forked_flag{false};

namespace {

const char text[] = "devices cannot be used in a forked child; use the 'spawn' start method";
void (*child_hook)() = nullptr;

void in_child() {
  forked_flag.store(true, std::memory_order_relaxed);
  child_hook();
}

template <class... Args>
fl_status refuse(Args... args) {
  fl_error* err = std::get<sizeof...(Args) - 1>(std::tuple<Args...>(args...));
  if (err != nullptr && err->capacity > 0) {
    size_t length = sizeof text - 1 < err->capacity - 1 ? sizeof text - 1 : err->capacity - 1;
    std::memcpy(err->message, text, length);
    err->message[length] = '\0';
    err->length = length;
    err->code = FL_FAILED_PRECONDITION;
  }
  return FL_FAILED_PRECONDITION;
}

template <class... Args>
void replace(fl_status (*&slot)(Args...)) {
  slot = refuse<Args...>;
}

template <class... Slots>
void replace_all(Slots&... slots) {
  (replace(slots), ...);
}

}  // namespace

void refuse_forked() {
  if (forked()) raise(ErrorClass::kRuntime, text);
}

void watch_forks(void (*hook)()) {
  child_hook = hook;
  static int registered = pthread_atfork(nullptr, nullptr, in_child);
  if (registered != 0) raise(ErrorClass::kRuntime, "no memory to watch for forks of this process");
}

void refuse_all_calls(Vendor& vendor) noexcept {
  fl_device_api& d = vendor.device;
  replace_all(d.count, d.open, d.close, d.info, d.sync);
  fl_memory_api& m = vendor.memory;
  replace_all(m.alloc, m.free, m.info, m.copy, m.fill);
  fl_stream_api& s = vendor.stream;
  replace_all(s.create, s.destroy, s.query, s.sync, s.host_task, s.wait_event);
  fl_event_api& e = vendor.event;
  replace_all(e.create, e.destroy, e.record, e.query, e.sync, e.elapsed);
  replace_all(vendor.kernel.kernels);
}

}  // namespace torch_fl
