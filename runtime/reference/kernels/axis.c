#include "axis.h"

#include "torch_fl/sdk/dtype.h"

void ref_axis_begin(ref_axis* axis) {
  axis->count = 1;
  axis->ndim = 0;
}

void ref_axis_add(ref_axis* axis, int64_t size, int64_t stride) {
  axis->count *= size;
  if (size == 1) {
    return;
  }
  if (axis->ndim > 0) {
    const uint32_t last = axis->ndim - 1;
    const int64_t span = (int64_t)((uint64_t)size * (uint64_t)stride); /* may wrap where numel is 0 */
    if (axis->strides[last] == span) {
      axis->sizes[last] *= size;
      axis->strides[last] = stride;
      return;
    }
  }
  axis->sizes[axis->ndim] = size;
  axis->strides[axis->ndim] = stride;
  axis->ndim += 1;
}

void ref_axis_of(const ref_view* view, uint32_t mask, ref_axis* axis) {
  ref_axis_begin(axis);
  for (uint32_t dim = 0; dim < view->ndim; dim++) {
    if ((mask >> dim) & 1u) {
      ref_axis_add(axis, view->sizes[dim], view->strides[dim]);
    }
  }
}

int64_t ref_axis_offset(const ref_axis* axis, int64_t index) {
  int64_t offset = 0;
  for (uint32_t dim = axis->ndim; dim-- > 1;) {
    offset += index % axis->sizes[dim] * axis->strides[dim];
    index /= axis->sizes[dim];
  }
  if (axis->ndim > 0) {
    offset += index * axis->strides[0];
  }
  return offset;
}

int64_t ref_axis_run(const ref_axis* axis, int64_t index) {
  if (axis->ndim == 0) {
    return axis->count - index;
  }
  const int64_t inner = axis->sizes[axis->ndim - 1];
  return inner - index % inner;
}

int64_t ref_axis_step(const ref_axis* axis) {
  return axis->ndim == 0 ? 0 : axis->strides[axis->ndim - 1];
}

char* ref_element(uint32_t dtype, char* origin, const ref_axis* axis, int64_t index) {
  return origin + ref_axis_offset(axis, index) * (int64_t)fl_dtype_size(dtype);
}

void ref_load(uint32_t dtype, const char* origin, const ref_axis* axis, int64_t first, int64_t count, void* values) {
  const int64_t lane_bytes = ref_lane_bytes(ref_lane_of(dtype));
  const int64_t step = ref_axis_step(axis);
  char* to = values;
  while (count > 0) {
    const int64_t run = ref_axis_run(axis, first);
    const int64_t some = run < count ? run : count;
    const char* from = origin + ref_axis_offset(axis, first) * (int64_t)fl_dtype_size(dtype);
    ref_load_run(dtype, from, step, some, to);
    to += some * lane_bytes;
    first += some;
    count -= some;
  }
}

void ref_store(uint32_t dtype, char* origin, const ref_axis* axis, int64_t first, int64_t count, const void* values) {
  const int64_t lane_bytes = ref_lane_bytes(ref_lane_of(dtype));
  const int64_t step = ref_axis_step(axis);
  const char* from = values;
  while (count > 0) {
    const int64_t run = ref_axis_run(axis, first);
    const int64_t some = run < count ? run : count;
    ref_store_run(dtype, ref_element(dtype, origin, axis, first), step, some, from);
    from += some * lane_bytes;
    first += some;
    count -= some;
  }
}
