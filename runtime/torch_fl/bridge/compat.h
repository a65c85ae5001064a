// What differs between the torch releases that this bridge builds for, and nothing else.
#pragma once
#include <torch/version.h>

#define FL_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#if !FL_TORCH_AT_LEAST(2, 11)
#error "torch_fl needs torch 2.11 or newer"
#endif

// c10::impl::DeviceGuardImplInterface::isStreamCapturing came with 2.12.
#if FL_TORCH_AT_LEAST(2, 12)
#define FL_OVERRIDE_SINCE_2_12 override
#else
#define FL_OVERRIDE_SINCE_2_12
#endif

// Tensors had dimension names before 2.13, and shape functions took them: what a set_output override declares and passes
// on, and whether a tensor has any, on whose agreement shape functions decide.
#if FL_TORCH_AT_LEAST(2, 13)
#define FL_DIMNAMES_PARAMETER
#define FL_DIMNAMES
#define FL_HAS_DIMNAMES(tensor) false
#else
#define FL_HAS_DIMNAMES(tensor) (tensor).has_names()
#define FL_DIMNAMES_PARAMETER , at::DimnameList names
#define FL_DIMNAMES , names
#endif

// Operators that torch runs in float32 under autocast without having them in its lists.
#if FL_TORCH_AT_LEAST(2, 14)
#define FL_FORALL_FP32_UNLISTED(_) _(linalg_matrix_sqrth)
#else
#define FL_FORALL_FP32_UNLISTED(_)
#endif
