/* echo.c - a control whose kernels give back the bytes of their first tensor, from its element 0 on. */
#include "wrong_kernels.h"

static void control_element(char* to, uint32_t dtype, uint64_t index, const ref_view* input) {
  uint32_t bytes = fl_dtype_size(dtype);
  memset(to, 0, bytes);
  if (input == NULL) return;
  uint32_t given = fl_dtype_size(input->dtype);
  uint64_t place = index % (uint64_t)input->numel;
  uint64_t offset = 0;
  for (uint32_t d = input->ndim; d-- > 0;) {
    offset += place % (uint64_t)input->sizes[d] * (uint64_t)input->strides[d];
    place /= (uint64_t)input->sizes[d];
  }
  memcpy(to, input->data + offset * given, given < bytes ? given : bytes);
}
