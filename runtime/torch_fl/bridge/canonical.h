// What operands become on their way into canonical form: tensors of the dtype that a slot takes.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/device.h"
#include "number.h"

namespace torch_fl {

// Every element of a contiguous tensor becomes the number, on the device's current stream.
void fill(Device& device, const at::Tensor& made, const fl_arg& number, uint32_t dtype);
// A new one.
at::Tensor filled(Device& device, const fl_arg& number, uint32_t dtype, c10::IntArrayRef sizes);

// The tensor's values in another dtype, laid out as it is where it is dense, else contiguous.
at::Tensor cast(Device& device, const at::Tensor& tensor, uint32_t dtype);

}  // namespace torch_fl
