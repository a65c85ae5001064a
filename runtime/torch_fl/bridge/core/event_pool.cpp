#include "event_pool.h"

#include "fork.h"

namespace torch_fl {

fl_status EventPool::take(bool timing, fl_event* out, VendorError& error) {
  refuse_forked();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<fl_event>& free = timing ? timing_ : plain_;
    if (!free.empty()) {
      *out = free.back();
      free.pop_back();
      return FL_OK;
    }
  }
  fl_event_create_args args = {sizeof args, FL_KIND_EVENT_CREATE_ARGS, nullptr, timing ? FL_EVENT_TIMING : 0u, 0};
  return device_.vendor.event.create(device_.handle, &args, out, error.out());
}

void EventPool::give_back(fl_event event, bool timing) noexcept {
  if (forked()) return;
  try {
    std::lock_guard<std::mutex> lock(mutex_);
    (timing ? timing_ : plain_).push_back(event);
  } catch (...) {  // no memory to remember it
    device_.vendor.event.destroy(event, nullptr);
  }
}

}  // namespace torch_fl
