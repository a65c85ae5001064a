// Calls in words, for errors and warnings.
#pragma once
#include <string>

#include "core/operator.h"

namespace torch_fl {

// "f32"; "dtype 99" for an unknown number.
std::string dtype_name(uint32_t dtype);

// "aten::add.Tensor(self f32[4, 4], other 2, alpha 1) -> f32[4, 4]"
std::string wording(const Operator& op, const fl_call& call);

}  // namespace torch_fl
