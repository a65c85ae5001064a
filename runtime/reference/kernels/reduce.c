/* reduce.c - dimensions, shapes and the walk of reductions. */
#include "reduce.h"

/* Below this many outputs side by side, each is reduced on its own. */
#define COLUMNS_MIN 8

ref_reduction ref_reduction_of(const ref_view* view, uint32_t mask) {
  ref_reduction reduction;
  reduction.dtype = view->dtype;
  reduction.data = view->data;
  ref_axis_of(view, ~mask, &reduction.kept);
  ref_axis_of(view, mask, &reduction.reduced);
  return reduction;
}

/* One reduced element of all outputs at a time: for outputs that lie closer together than what they sum. */
static void fold_across(const ref_reduction* reduction, const ref_fold* fold, int64_t first, int64_t count,
                        const void* center, void* acc) {
  double values[REF_BLOCK];
  for (int64_t k = 0; k < reduction->reduced.count; k++) {
    const char* origin = ref_element(reduction->dtype, reduction->data, &reduction->reduced, k);
    ref_load(reduction->dtype, origin, &reduction->kept, first, count, values);
    fold->columns(acc, center, values, count);
  }
}

/* All elements of one output after the other. */
static void fold_along(const ref_reduction* reduction, const ref_fold* fold, int64_t first, int64_t count,
                       const void* center, void* acc) {
  const int64_t lane_bytes = ref_lane_bytes(ref_lane_of(reduction->dtype));
  double values[REF_CHUNK];
  for (int64_t i = 0; i < count; i++) {
    const char* origin = ref_element(reduction->dtype, reduction->data, &reduction->kept, first + i);
    const char* center_of_output = (const char*)center + i * lane_bytes;
    char* acc_of_output = (char*)acc + i * lane_bytes;
    for (int64_t k = 0; k < reduction->reduced.count; k += REF_CHUNK) {
      const int64_t left = reduction->reduced.count - k;
      const int64_t some = left < REF_CHUNK ? left : REF_CHUNK;
      ref_load(reduction->dtype, origin, &reduction->reduced, k, some, values);
      fold->run(acc_of_output, center_of_output, values, some);
    }
  }
}

void ref_fold_block(const ref_reduction* reduction, const ref_fold* fold, int64_t first, int64_t count,
                    const void* center, void* acc) {
  const int64_t kept_step = ref_axis_step(&reduction->kept);
  const int64_t reduced_step = ref_axis_step(&reduction->reduced);
  if (reduction->reduced.count == 0) {
    return;
  }
  const int close = reduction->reduced.count == 1 || kept_step < reduced_step;
  if (close && count >= COLUMNS_MIN) {
    fold_across(reduction, fold, first, count, center, acc);
    return;
  }
  fold_along(reduction, fold, first, count, center, acc);
}

void ref_fill_values(ref_lane lane, ref_value value, int64_t count, void* values) {
  for (int64_t i = 0; i < count; i++) {
    switch (lane) {
      case REF_LANE_F32:
        ((float*)values)[i] = value.f32;
        break;
      case REF_LANE_F64:
        ((double*)values)[i] = value.f64;
        break;
      default:
        ((int64_t*)values)[i] = value.i64;
        break;
    }
  }
}

fl_status ref_dims_mask(const fl_kernel* kernel, const fl_arg* arg, uint32_t ndim, uint32_t* mask, fl_error* err) {
  const int64_t* dims = arg->tag == FL_TAG_INT ? &arg->value.i : arg->value.ints;
  const uint32_t count = arg->tag == FL_TAG_INT ? 1 : arg->count;
  const int64_t limit = ndim == 0 ? 1 : (int64_t)ndim;
  uint32_t seen = 0;
  if (count > 0 && dims == NULL) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: the list of dimensions is NULL", kernel->op);
  }
  for (uint32_t i = 0; i < count; i++) {
    if (dims[i] < 0 || dims[i] >= limit) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "%s: dimension %lld of a tensor of %u dimensions", kernel->op,
                     (long long)dims[i], (unsigned)ndim);
    }
    if ((seen >> dims[i]) & 1u) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "%s: dimension %lld is named twice", kernel->op, (long long)dims[i]);
    }
    seen |= 1u << dims[i];
  }
  *mask = ndim == 0 ? 0 : seen;
  return FL_OK;
}

fl_status ref_check_keepdim(const fl_kernel* kernel, const fl_tensor* in, uint32_t mask, const fl_tensor* out,
                            fl_error* err) {
  if (in->ndim != out->ndim) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: an output has %u dimensions, not %u", kernel->op,
                   (unsigned)out->ndim, (unsigned)in->ndim);
  }
  for (uint32_t dim = 0; dim < in->ndim; dim++) {
    const int64_t size = (mask >> dim) & 1u ? 1 : in->sizes[dim];
    if (out->sizes[dim] != size) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "%s: dimension %u of an output is %lld, not %lld", kernel->op,
                     (unsigned)dim, (long long)out->sizes[dim], (long long)size);
    }
  }
  return FL_OK;
}

fl_status ref_check_shape(const fl_kernel* kernel, const fl_tensor* in, const fl_tensor* out, fl_error* err) {
  return ref_check_keepdim(kernel, in, 0, out, err);
}
