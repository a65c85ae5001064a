// What a forked child may do with its parent's devices: nothing, and it is told so.
#pragma once
#include <atomic>

#include "device.h"

namespace torch_fl {

extern std::atomic<bool> forked_flag;

// Whether this process was forked from one that had begun to look for devices. Locks that another thread of the parent
// held are then held for ever, and the vendor's threads are gone.
inline bool forked() noexcept { return __builtin_expect(forked_flag.load(std::memory_order_relaxed), 0); }
// Raises kRuntime in such a child.
void refuse_forked();

// From the first call on, children of this process are forked ones. `in_child` runs in each, in which nothing but plain
// memory is safe to touch.
void watch_forks(void (*in_child)());
// Lets every function of the vendor's five tables fail with FL_FAILED_PRECONDITION and the text that refuse_forked has.
void refuse_all_calls(Vendor& vendor) noexcept;

}  // namespace torch_fl
