// New tensors on fl devices.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "core/device.h"

namespace torch_fl {

// Uninitialised memory for the device's current stream. Contiguous, or with `strides` of as many elements as `sizes`,
// all >= 0. Makes no checks: sizes and dtype come from a tensor or from torch.
at::Tensor empty_on(Device& device, c10::ScalarType dtype, c10::IntArrayRef sizes);
at::Tensor empty_on(Device& device, c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides);

}  // namespace torch_fl
