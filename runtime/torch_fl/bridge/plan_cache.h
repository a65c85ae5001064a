// Plans of kernels whose plan depends on metadata only (FL_KERNEL_PLAN_PURE), kept per thread.
#pragma once
#include "torch_fl/plugin.h"

namespace torch_fl {

// What plan wrote for this kernel, device and metadata the last time, null when it is not known. The pointer holds until
// the thread's next call. Metadata is all of `call` but addresses, workspace and random state.
const fl_plan* find_plan(const fl_kernel& kernel, fl_device device, const fl_call& call);
// Keeps the plan of the call that find_plan was last asked for in this thread and that is still there, unless its metadata
// is too long.
void keep_plan(const fl_plan& plan) noexcept;

}  // namespace torch_fl
