// Python's lock, for code that may run with or without it: the core calls neither Python nor torch.
#pragma once

namespace torch_fl {

// Whether there is a Python to ask: not in a thread that outlives the interpreter.
bool python_runs() noexcept;

// Releases the GIL for its scope where the calling thread holds it. Torch calls several hooks that may wait (for a
// stream or an event, for devices to be found, for memory) with the GIL held.
class ReleaseGil {
 public:
  ReleaseGil() noexcept;
  ~ReleaseGil();
  ReleaseGil(const ReleaseGil&) = delete;
  ReleaseGil& operator=(const ReleaseGil&) = delete;

 private:
  void* thread_state_;  // null: the GIL was not held
};

// Lets Python run its signal handlers, on the main thread only: throws what they raise (Ctrl-C: KeyboardInterrupt).
// Does nothing where there is no Python to ask, as in a thread that outlives the interpreter.
void run_signal_handlers();

// Within a catch block where nothing may be raised: the logger torch_fl.devices is told what was swallowed, and a
// KeyboardInterrupt comes again as soon as Python can take it.
void note_swallowed(const char* where) noexcept;

}  // namespace torch_fl
