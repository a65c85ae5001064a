/* pool_sums.c - planes that the gradients of pooling are summed in. */
#include "pool_sums.h"

#include <string.h>

/* Both are asked of the same tensor, as it came and as a view: they agree. */
static int lies_as_sums(uint32_t dtype, int64_t height, int64_t width, int64_t line_step, int64_t step) {
  const int is_value = dtype == FL_DTYPE_F32 || dtype == FL_DTYPE_F64;
  return is_value && (width == 1 || step == 1) && (height == 1 || line_step == width);
}

int64_t pool_sums_bytes(const fl_tensor* gradient) {
  const uint32_t last = gradient->ndim - 1;
  const int64_t height = gradient->sizes[last - 1];
  const int64_t width = gradient->sizes[last];
  if (lies_as_sums(gradient->dtype, height, width, gradient->strides[last - 1], gradient->strides[last])) {
    return 0;
  }
  return pool_aligned(height * width * ref_lane_bytes(ref_lane_of(gradient->dtype)));
}

pool_sums pool_sums_of(const ref_view* gradient, char* workspace) {
  pool_sums sums = {gradient, pool_planes(gradient), {0}, workspace};
  ref_axis_of(gradient, 0xCu, &sums.positions);
  if (lies_as_sums(gradient->dtype, gradient->sizes[2], gradient->sizes[3], gradient->strides[2],
                   gradient->strides[3])) {
    sums.workspace = NULL;
  }
  return sums;
}

static char* plane_of(const pool_sums* sums, int64_t index) {
  return ref_element(sums->gradient->dtype, sums->gradient->data, &sums->planes, index);
}

char* pool_sums_begin(const pool_sums* sums, int64_t index) {
  char* values = sums->workspace != NULL ? sums->workspace : plane_of(sums, index);
  memset(values, 0, (size_t)(sums->positions.count * ref_lane_bytes(ref_lane_of(sums->gradient->dtype))));
  return values;
}

void pool_sums_end(const pool_sums* sums, int64_t index) {
  if (sums->workspace != NULL) {
    ref_store(sums->gradient->dtype, plane_of(sums, index), &sums->positions, 0, sums->positions.count,
              sums->workspace);
  }
}
