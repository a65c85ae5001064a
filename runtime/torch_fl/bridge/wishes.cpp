// What the user told torch, for the choice of kernels.
#include <ATen/Context.h>

#include "core/route.h"

namespace torch_fl {
namespace {

// torch.set_float32_matmul_precision("high" or "medium"): torch says it of matrix products of float32 alone.
bool admits_fast_f32_products() noexcept {
  try {
    return at::globalContext().float32MatmulPrecision() != at::Float32MatmulPrecision::HIGHEST;
  } catch (...) {  // torch refuses to say where its older and newer settings contradict each other
    return false;
  }
}

// torch.use_deterministic_algorithms(True)
bool wants_deterministic() noexcept { return at::globalContext().deterministicAlgorithms(); }

const bool asked = [] {
  policy.admits_fast_f32_products = &admits_fast_f32_products;
  policy.wants_deterministic = &wants_deterministic;
  return true;
}();

}  // namespace
}  // namespace torch_fl
