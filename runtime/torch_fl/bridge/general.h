// The general lane: one boxed kernel for any operator of the registry that has no line in the fast lane.
#pragma once
#include <string>

#include "core/operator.h"

namespace torch_fl {

// Registers it with torch for the operator and for its in-place and out= forms, as far as they have no kernel for fl
// devices yet; replace: also where they have one, to tell the two lanes apart. Returns why that cannot be, "" where it can:
// the registry and the installed torch may not fit together.
std::string add_general_kernel(const Operator& op, bool replace);

}  // namespace torch_fl
