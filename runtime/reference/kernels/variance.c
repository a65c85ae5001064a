/*
 * variance.c - var.correction: two passes, the mean first, then the squares about it.
 *
 * With one pass, E[x^2] - E[x]^2, a mean of 1000 standard deviations would cost six of a float's seven digits.
 */
#include "reduce.h"

typedef struct {
  ref_view in;
  ref_view out;
  double correction;
  uint32_t mask;
} variance_work;

/* Divides by n - correction, as ATen by no less than zero: 0/0 is NaN, anything else inf. */
static void divide(ref_lane lane, double divisor, int64_t count, void* acc) {
  for (int64_t i = 0; i < count; i++) {
    if (lane == REF_LANE_F32) {
      ((float*)acc)[i] /= (float)divisor;
    } else {
      ((double*)acc)[i] /= divisor;
    }
  }
}

static void variance_execute(const void* payload) {
  const variance_work* work = payload;
  const ref_lane lane = ref_lane_of(work->in.dtype);
  const ref_reduction reduction = ref_reduction_of(&work->in, work->mask);
  const double elements = (double)reduction.reduced.count;
  const double freedom = elements - work->correction;
  const double divisor = freedom > 0 ? freedom : 0;
  const ref_value zero = {.i64 = 0}; /* all bits 0: zero in every lane */
  ref_axis out_axis;
  double mean[REF_BLOCK];
  double squares[REF_BLOCK];
  ref_axis_of(&work->out, ~0u, &out_axis);
  for (int64_t first = 0; first < work->out.numel; first += REF_BLOCK) {
    const int64_t left = work->out.numel - first;
    const int64_t count = left < REF_BLOCK ? left : REF_BLOCK;
    ref_fill_values(lane, zero, count, mean);
    ref_fold_block(&reduction, &ref_fold_sum[lane], first, count, mean, mean);
    divide(lane, elements, count, mean);
    ref_fill_values(lane, zero, count, squares);
    ref_fold_block(&reduction, &ref_fold_squares[lane], first, count, mean, squares);
    divide(lane, divisor, count, squares);
    ref_store(work->out.dtype, work->out.data, &out_axis, first, count, squares);
  }
}

static fl_status variance_check(const fl_kernel* kernel, const fl_call* call, uint32_t* mask, fl_error* err) {
  ref_types types;
  FL_TRY(ref_check(kernel, call, &types, err));
  const fl_tensor* in = call->args[0].value.tensor;
  FL_TRY(ref_dims_mask(kernel, &call->args[1], in->ndim, mask, err));
  return ref_check_keepdim(kernel, in, *mask, call->outs[0], err);
}

fl_status ref_variance_plan(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                               fl_error* err) {
  uint32_t mask = 0;
  FL_TRY(ref_check_plan(device, out, err));
  FL_TRY(variance_check(kernel, call, &mask, err));
  fl_plan_set(out, 0, 0, 0);
  return FL_OK;
}

fl_status ref_variance_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  variance_work work;
  FL_TRY(variance_check(kernel, call, &work.mask, err));
  FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work.in, err));
  FL_TRY(ref_view_of(stream, call->outs[0], &work.out, err));
  work.correction = call->args[2].value.f;
  if (work.out.numel == 0) {
    return FL_OK;
  }
  return ref_submit(stream, variance_execute, &work, sizeof work, err);
}

const ref_signature ref_variance_signature = {
    .args = {{REF_TENSOR, 0}, {REF_INT_LIST, 0}, {REF_FLOAT, 0}},
    .outs = {{REF_TENSOR, 0}},
};
