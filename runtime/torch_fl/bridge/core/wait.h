// Long waits, cut into slices so that the user can interrupt them.
#pragma once
#include <cstdint>

#include "stream.h"

namespace torch_fl {

constexpr uint64_t kSliceNs = 50'000'000;

// Calls sync(timeout in ns) until it says something else than FL_TIMEOUT, which it returns. check_signals may throw in
// between. Holds no lock, and neither may the caller.
template <class Sync>
fl_status wait_in_slices(Sync&& sync) {
  for (;;) {
    fl_status status = sync(kSliceNs);
    if (status != FL_TIMEOUT) return status;
    if (check_signals != nullptr) check_signals();
  }
}

}  // namespace torch_fl
