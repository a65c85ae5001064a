// The process may end at any time: with work pending, with memory allocated, with threads in the midst of calls.
#include <atomic>
#include <cstdlib>

#include "harness.h"

using namespace harness;

namespace {

char** paths;

// Keeps streams busy and memory in use, and returns while it is so.
void leave_work_pending() {
  add_reference_devices(paths);
  static Gate* gate = new Gate;         // never opened, and never destroyed
  static Event event(device(0), true);  // destroyed by the end of the process
  for (int i = 0; i < device_count(); i++) {
    Device& d = device(i);
    Stream& stream = d.streams().create(0);
    Stream& reader = d.streams().create(0);
    if (!d.is_inline) gate->close_on(stream);
    Block* block = d.pool().allocate(1000, stream);
    fill(stream, *block, 1);
    d.pool().record_stream(block, reader);
    if (!d.is_inline) gate->close_on(reader);
    d.pool().release(block);
    d.pool().allocate(3 << 20, reader);
  }
  event.record(device(0).streams().standard());
}

void end_by_return() { leave_work_pending(); }

void end_amid_threads() {
  leave_work_pending();
  for (int t = 0; t < 3; t++) {
    std::thread([] {
      for (;;) {
        Device& d = device(0);
        Stream& stream = d.streams().from_pool(0);
        Block* block = d.pool().allocate(3000, stream);
        fill(stream, *block, 1);
        d.pool().release(block);
      }
    }).detach();
  }
  std::thread([] { device(1).streams().all().back()->synchronize(); }).detach();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

// Holders of blocks that are destroyed after everything else.
void end_by_releasing_late() {
  leave_work_pending();
  static Block* late = device(0).pool().allocate(4000, device(0).streams().standard());
  device(0).pool().record_stream(late, device(0).streams().create(0));
  std::atexit([] { device(0).pool().release(late); });
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc == 3 || argc == 4);
  alarm(120);
  paths = argv + 1;
  void (*const endings[])() = {end_by_return, end_amid_threads, end_by_releasing_late};
  if (argc == 4) {
    endings[std::atoi(argv[3])]();
    return 0;
  }
  for (const char* ending : {"0", "1", "2"}) {
    in_child([&] {
      // What is pending when a process ends is not lost, and threads of the vendor are no leak.
      setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
      setenv("TSAN_OPTIONS", "halt_on_error=1:report_thread_leaks=0", 1);
      execl("/proc/self/exe", "exit_check", paths[0], paths[1], ending, nullptr);
      _exit(9);
    });
  }
  return 0;
}
