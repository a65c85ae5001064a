// Python's lock, for code that may run with or without it: the core calls neither Python nor torch.
#pragma once

namespace torch_fl {

// Releases the GIL for its scope where the calling thread holds it. Torch calls several hooks that may wait (an event's
// record and query, a storage's construction) with the GIL held, and a vendor's log message may need it meanwhile.
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

}  // namespace torch_fl
