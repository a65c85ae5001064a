/* pool_shape.c - reading and checking the geometry of pooling. */
#include "pool_shape.h"

static fl_status plane_of(const fl_kernel* kernel, const fl_tensor* tensor, int64_t sizes[2], fl_error* err) {
  for (uint32_t i = 0; i < 2; i++) {
    sizes[i] = tensor->sizes[tensor->ndim - 2 + i];
  }
  if (sizes[0] < 1 || sizes[1] < 1) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: a plane of %lld by %lld elements", kernel->op, (long long)sizes[0],
                   (long long)sizes[1]);
  }
  if (sizes[0] > INT32_MAX / sizes[1]) {
    return fl_fail(err, FL_UNIMPLEMENTED, "%s: a plane of 2^31 elements or more", kernel->op);
  }
  return FL_OK;
}

fl_status pool_planes_of(const fl_kernel* kernel, const fl_tensor* wide, const fl_tensor* narrow, conv_shape* shape,
                         fl_error* err) {
  if (wide->ndim < 3 || wide->ndim > 4 || narrow->ndim != wide->ndim) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: tensors of %u and %u dimensions, not both of 3 or of 4", kernel->op,
                   (unsigned)wide->ndim, (unsigned)narrow->ndim);
  }
  for (uint32_t dim = 0; dim + 2 < wide->ndim; dim++) {
    if (wide->sizes[dim] != narrow->sizes[dim]) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "%s: dimension %u is %lld and %lld", kernel->op, (unsigned)dim,
                     (long long)wide->sizes[dim], (long long)narrow->sizes[dim]);
    }
  }
  FL_TRY(plane_of(kernel, wide, shape->in, err));
  return plane_of(kernel, narrow, shape->out, err);
}

/* The quotient rounded down, for a positive divisor. */
static int64_t divide_down(int64_t numerator, int64_t divisor) {
  const int64_t quotient = numerator / divisor;
  return quotient * divisor > numerator ? quotient - 1 : quotient;
}

/* Whether ATen gives `out` results: with ceil_mode one more, whose window begins inside of the input or its padding,
 * may reach beyond both. */
static int outputs_fit(const conv_shape* shape, int dim) {
  const int64_t stride = shape->stride[dim];
  const int64_t window = shape->dilation[dim] * (shape->taps[dim] - 1) + 1;
  const int64_t room = shape->in[dim] + 2 * shape->padding[dim] - window;
  const int64_t whole = divide_down(room, stride) + 1;
  int64_t most = divide_down(room + stride - 1, stride) + 1;
  if ((most - 1) * stride >= shape->in[dim] + shape->padding[dim]) {
    most -= 1;
  }
  return shape->out[dim] == whole || shape->out[dim] == most;
}

fl_status pool_shape_of(const fl_kernel* kernel, const fl_call* call, uint32_t slot, int dilated, const fl_tensor* wide,
                        const fl_tensor* narrow, conv_shape* shape, fl_error* err) {
  FL_TRY(conv_read_list(kernel, call, slot, 2, 1, 1, shape->taps, err));
  FL_TRY(conv_read_list(kernel, call, slot + 1, 2, 1, 1, shape->stride, err));
  FL_TRY(conv_read_list(kernel, call, slot + 2, 2, 0, 0, shape->padding, err));
  shape->dilation[0] = 1;
  shape->dilation[1] = 1;
  if (dilated) {
    FL_TRY(conv_read_list(kernel, call, slot + 3, 2, 1, 1, shape->dilation, err));
  }
  FL_TRY(pool_planes_of(kernel, wide, narrow, shape, err));
  for (int dim = 0; dim < 2; dim++) {
    if (shape->padding[dim] > shape->taps[dim] / 2) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "%s: a padding of %lld, more than half a window of %lld", kernel->op,
                     (long long)shape->padding[dim], (long long)shape->taps[dim]);
    }
    if (!outputs_fit(shape, dim)) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "%s: %lld outputs of %lld elements do not fit the window", kernel->op,
                     (long long)shape->out[dim], (long long)shape->in[dim]);
    }
  }
  return FL_OK;
}

void pool_four_dims(ref_view* view) {
  if (view->ndim == 4) {
    return;
  }
  for (uint32_t dim = 3; dim > 0; dim--) {
    view->sizes[dim] = view->sizes[dim - 1];
    view->strides[dim] = view->strides[dim - 1];
  }
  view->sizes[0] = 1;
  view->strides[0] = 0;
  view->ndim = 4;
}

ref_axis pool_planes(const ref_view* view) {
  ref_axis planes;
  ref_axis_of(view, 0x3u, &planes);
  return planes;
}

int64_t pool_aligned(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

int pool_lines_are_values(const ref_view* view) {
  const int is_value = view->dtype == FL_DTYPE_F32 || view->dtype == FL_DTYPE_F64;
  return is_value && (view->strides[3] == 1 || view->sizes[3] == 1);
}
