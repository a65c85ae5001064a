// What outputs an operator gives: their dtypes, sizes and strides, from torch's Meta key or from an earlier call like it.
#pragma once
#include <memory>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/DimVector.h>

#include "core/route.h"

namespace torch_fl {

struct OutputShape {
  c10::ScalarType dtype;
  c10::DimVector sizes;
  c10::DimVector strides;
};

// Of the results of `op` for these arguments, all of its schema's. Null where torch cannot say: no Meta kernel, sizes
// that hang on values, results that are no tensors. Raises what the Meta kernel raises. Counts hit or miss.
//
// Calls are alike that agree in sizes, strides, dtypes and devices of all tensors and in the values of all other
// arguments. Thread-safe; keeps a bounded number of kinds of calls, those used last.
std::shared_ptr<const std::vector<OutputShape>> output_shapes(const c10::OperatorHandle& op,
                                                              c10::ArrayRef<c10::IValue> arguments, Counters& counters);

}  // namespace torch_fl
