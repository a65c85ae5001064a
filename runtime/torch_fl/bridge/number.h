// Numbers on their way to a vendor: normalised to the dtype that they take part in.
#pragma once
#include <ATen/core/TensorBase.h>
#include <c10/core/Scalar.h>

#include "torch_fl/plugin.h"

namespace torch_fl {

// A number as fl_arg for elements of `dtype` (FL_DTYPE_*): BOOL for bool, INT or UINT for integers, FLOAT for floating
// types and FL_DTYPE_NONE, whose value is one of the compute dtype (f32 for halves). Raises as torch does where the
// value lies outside the dtype.
fl_arg number(const c10::Scalar& value, uint32_t dtype);

// The same where the number stands for a tensor: converted without a check, as a cast of that tensor would. The tensor is
// a 0-dimensional one on the CPU.
fl_arg number_for_tensor(const c10::Scalar& value, uint32_t dtype);
fl_arg number_for_tensor(const at::TensorBase& value, uint32_t dtype);

// The lowest 1, 2, 4 or 8 bytes that an element of `dtype` with this value has: a pattern for fl_memory_api.fill.
uint64_t bits_of(const fl_arg& number, uint32_t dtype);

}  // namespace torch_fl
