/* batch_channels.c - the numbers of batch norm's channels: steps, loads and stores, the checks of their shapes. */
#include "batch_norm.h"

#include <math.h>

#define ACC float
#define SQRT sqrtf
#define NAME(x) x##_f32
#include "batch_channels.inc"
#undef ACC
#undef SQRT
#undef NAME

#define ACC double
#define SQRT sqrt
#define NAME(x) x##_f64
#include "batch_channels.inc"

#define STEPS(lane) \
  {divide_##lane, invert_##lane, update_##lane, multiply_##lane, apply_##lane, cross_##lane, give_back_##lane}

const ref_norm_steps ref_norm_steps_of[2] = {[REF_LANE_F32] = STEPS(f32), [REF_LANE_F64] = STEPS(f64)};

void ref_load_channels(const ref_view* view, int64_t first, int64_t count, double absent, void* values) {
  const ref_lane lane = ref_lane_of(view->dtype);
  if (view->numel > 0) {
    ref_axis axis;
    ref_axis_of(view, ~0u, &axis);
    ref_load(view->dtype, view->data, &axis, first, count, values);
    return;
  }
  ref_value value;
  if (lane == REF_LANE_F32) {
    value.f32 = (float)absent;
  } else {
    value.f64 = absent;
  }
  ref_fill_values(lane, value, count, values);
}

void ref_store_channels(const ref_view* view, int64_t first, int64_t count, const void* values) {
  if (view->numel > 0) {
    ref_axis axis;
    ref_axis_of(view, ~0u, &axis);
    ref_store(view->dtype, view->data, &axis, first, count, values);
  }
}

/* Fewer channels than this are walked one after the other. */
#define COLUMNS_MIN 8

int ref_channels_are_close(const ref_reduction* in, int64_t count) {
  return count >= COLUMNS_MIN && (in->reduced.count == 1 || ref_axis_step(&in->kept) < ref_axis_step(&in->reduced));
}

static int is_of_channels(const fl_tensor* input, const fl_tensor* tensor) {
  return tensor->ndim == 1 && tensor->sizes[0] == input->sizes[REF_CHANNEL_DIM];
}

fl_status ref_check_channels(const fl_kernel* kernel, const fl_tensor* input, const fl_call* call, uint32_t slot,
                             fl_error* err) {
  const fl_arg* arg = &call->args[slot];
  if (arg->tag == FL_TAG_NONE || is_of_channels(input, arg->value.tensor)) {
    return FL_OK;
  }
  return fl_fail(err, FL_INVALID_ARGUMENT, "%s: argument %u has not one number for each channel", kernel->op,
                 (unsigned)slot);
}

fl_status ref_check_channel_out(const fl_kernel* kernel, const fl_tensor* input, const fl_call* call, uint32_t place,
                                fl_error* err) {
  const fl_tensor* out = call->outs[place];
  if (is_of_channels(input, out) || ref_is_unwanted(out)) {
    return FL_OK;
  }
  return fl_fail(err, FL_INVALID_ARGUMENT, "%s: output %u has neither one number for each channel nor none",
                 kernel->op, (unsigned)place);
}

fl_status ref_view_of_optional(fl_stream stream, const fl_arg* arg, ref_view* view, fl_error* err) {
  if (arg->tag == FL_TAG_TENSOR) {
    return ref_view_of(stream, arg->value.tensor, view, err);
  }
  view->ndim = 0;
  view->numel = 0;
  return FL_OK;
}
