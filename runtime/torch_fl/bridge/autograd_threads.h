// The threads that run backward passes, one per device, when the process ends.
#pragma once

namespace torch_fl {

// Ends them; no backward pass on a device after this. To be called without the GIL, while Python still runs: a thread that
// frees the last backward pass needs the GIL to do so, and aborts the process where Python ends first. Without this, a
// script whose last act is backward() dies more often than not. Waits for work in progress, but not for ever.
void end_autograd_threads();

}  // namespace torch_fl
