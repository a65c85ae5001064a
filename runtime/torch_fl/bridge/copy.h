// Copies between tensors of any devices, dtypes and strides: what copy_, to(), cpu() and resize come down to.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/device.h"

namespace torch_fl {

// destination[...] = source, broadcast and cast, as torch's copy_ has it. At least one of the two is on an fl device, the
// other may be on any. Ordered after pending work of the calling thread's current streams of both devices and before
// later work of them. Host memory may be used again when this returns, unless it is pinned and `non_blocking` is true;
// a destination on the host has been written by then, with the same exception. Raises what torch raises for sizes, and
// what a device says; a failed stream surfaces here where the copy waits for it.
void copy_tensor(const at::Tensor& destination, const at::Tensor& source, bool non_blocking);

// A CPU tensor of the values of an fl tensor, in memory that is nobody else's: same sizes, strides as close to the
// source's as reading it once allows, no conj or neg bits. Waits for the device.
at::Tensor to_host(const at::Tensor& source);

// A tensor of the device with the values of one that is elsewhere: same sizes, strides as to(device) gives.
at::Tensor to_device(const at::Tensor& source, Device& device);

}  // namespace torch_fl
