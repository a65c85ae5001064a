// Discovery: run once, by whoever asks first, and by one thread.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "device.h"
#include "fork.h"
#include "registry.h"

namespace torch_fl {

void (*blocking)(void (*wait)(void*), void* argument) = nullptr;

namespace {

enum class Progress { kNever, kRunning, kDone };

struct Discovery {
  std::atomic<bool> done{false};  // the quick look; the rest is guarded by mutex
  std::mutex mutex;
  std::condition_variable changed;
  Progress progress = Progress::kNever;
  std::thread::id runner;
  void (*hook)() = nullptr;
};

Discovery& discovery() {
  static Discovery& leaked = *new Discovery;
  return leaked;
}

// Takes the turn to run discovery: false where it is done, or running in this very thread.
bool take_turn() {
  Discovery& state = discovery();
  std::unique_lock<std::mutex> lock(state.mutex);
  while (state.progress == Progress::kRunning && state.runner != std::this_thread::get_id()) {
    state.changed.wait(lock);
  }
  if (state.progress != Progress::kNever || state.hook == nullptr) return false;
  state.progress = Progress::kRunning;
  state.runner = std::this_thread::get_id();
  return true;
}

void end_turn(Progress progress) {
  Discovery& state = discovery();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.progress = progress;
  state.done.store(progress == Progress::kDone, std::memory_order_release);
  state.changed.notify_all();
}

}  // namespace

void watch_devices() { watch_forks(refuse_calls_of_all_vendors); }

void set_discovery(void (*discover)()) {
  Discovery& state = discovery();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.hook = discover;
}

void ensure_discovered() {
  refuse_forked();
  Discovery& state = discovery();
  if (state.done.load(std::memory_order_acquire)) return;

  bool mine = false;
  auto turn = [](void* out) { *static_cast<bool*>(out) = take_turn(); };
  if (blocking != nullptr) {
    blocking(turn, &mine);
  } else {
    turn(&mine);
  }
  if (!mine) return;
  int before = place_count();
  try {
    watch_devices();
    state.hook();
  } catch (...) {
    truncate_places(before);
    end_turn(Progress::kNever);
    throw;
  }
  end_turn(Progress::kDone);
}

}  // namespace torch_fl
