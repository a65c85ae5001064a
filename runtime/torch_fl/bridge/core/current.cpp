// The calling thread's current device and streams.
#include "error.h"
#include "fork.h"
#include "stream.h"

namespace torch_fl {

namespace {

// Constant-initialised, so that reading it runs no initialiser.
struct Current {
  int device = 0;
  Stream* streams[kMaxDevices] = {};  // null: the default one
};
thread_local Current current;

// Accepts every place of the list, usable or not.
void check_index(int index) {
  if (index >= 0 && index < kMaxDevices && device_list[index] != nullptr) return;
  if (index >= 0 && index < device_count()) return;
  device(index);  // raises
}

}  // namespace

int current_device() noexcept { return current.device; }

void set_current_device(int index) {
  check_index(index);
  current.device = index;
}

int exchange_device(int index) {
  int former = current.device;
  if (index == -1) return former;
  check_index(index);
  current.device = index;
  return former;
}

Stream& current_stream(Device& device) {
  Stream* stream = current.streams[device.index];
  return __builtin_expect(stream != nullptr, 1) ? *stream : device.streams().standard();
}

void set_current_stream(Stream& stream) noexcept { current.streams[stream.device.index] = &stream; }

}  // namespace torch_fl
