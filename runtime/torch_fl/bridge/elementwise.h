// Calls of pointwise operators: element by element, all operands expanded to the output's sizes.
#pragma once
#include "argument.h"
#include "call.h"

namespace torch_fl {

// The shortcut for tensors that lie the same way: same sizes and strides, dense, of dtypes that some row has; numbers
// that change no dtype. Such a call is one of a flat array. `args` are in the order of op.slots. `out` undefined: it is
// allocated; defined: it is args[0]'s tensor, computed in place. False: not such a call, or no kernel takes it; nothing
// has happened (but `out` may be set).
bool run_flat(const Operator& op, const Argument* args, at::Tensor& out);

// The general case, once the output is there: `row` is what the tensors promote to. Casts and expands operands, makes
// tensors of numbers where a slot takes none; computes into memory of its own where the output's dtype is not the row's.
// given: the output is the user's and may be, or share memory with, an operand. False: no kernel takes it.
bool run_elementwise(const Operator& op, const Argument* args, DtypeRow row, const at::Tensor& out, bool given);

}  // namespace torch_fl
