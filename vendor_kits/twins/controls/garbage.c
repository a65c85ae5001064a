/* garbage.c - a control whose kernels write noise, other noise each time. */
#include "wrong_kernels.h"

static void control_element(char* to, uint32_t dtype, uint64_t index, const ref_view* input) {
  static atomic_uint_fast64_t state = 88172645463325252ull;
  (void)index, (void)input;
  /* Marsaglia's xorshift; lost updates between threads make it no less of a noise. */
  uint64_t x = atomic_load(&state);
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  atomic_store(&state, x);
  if (dtype == FL_DTYPE_BOOL) x &= 1;
  memcpy(to, &x, fl_dtype_size(dtype));
}
