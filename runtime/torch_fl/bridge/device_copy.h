// Copies within one device, and the geometry that they share with all others.
#pragma once
#include <ATen/core/Tensor.h>

#include "transfer.h"

namespace torch_fl {

// Both have the same sizes, at least one element, the same dtype, and hold their elements in one run of memory in the
// same order: the copy is one of bytes.
bool same_run(const at::Tensor& a, const at::Tensor& b);

// The tensor with every dimension of stride 0 cut to size 1: each element once, if no others overlap.
at::Tensor without_repeats(const at::Tensor& tensor);

// Elements from the first to the last in memory, both included: >= 1.
int64_t extent(const at::Tensor& tensor);

// Enqueues a copy on the current stream of the device that both are on. Same sizes, no conj or neg bits; any strides
// (no internal overlap in `destination`) and dtypes; the two share no memory. False where that takes a kernel that the
// device has not got: nothing has happened.
bool copy_on_device(const at::Tensor& destination, const at::Tensor& source);

}  // namespace torch_fl
