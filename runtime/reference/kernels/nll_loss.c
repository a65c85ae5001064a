/*
 * nll_loss.c - nll_loss_forward: of each row of self the element that its target names, negative and weighted.
 *
 * Halves are multiplied and summed in float and rounded once at the end. An element that does not count is not read.
 */
#include "nll_loss.h"
#include "reduce.h"

typedef struct {
  nll_batch batch;
  ref_view self;
  ref_view output;
  ref_view total;
} loss_work;

/* Elements of self that the targets name, 0 for -1. */
static void load_named(const loss_work* work, int64_t from, const int64_t* targets, int64_t count, void* values) {
  const uint32_t dtype = work->self.dtype;
  const int64_t bytes = (int64_t)fl_dtype_size(dtype);
  const int64_t lane_bytes = ref_lane_bytes(ref_lane_of(dtype));
  const int64_t row_step = work->self.ndim == 2 ? work->self.strides[0] : 0;
  const int64_t class_step = work->self.strides[work->self.ndim - 1];
  char* to = values;
  for (int64_t i = 0; i < count; i++, to += lane_bytes) {
    memset(to, 0, (size_t)lane_bytes);
    if (targets[i] >= 0) {
      const int64_t element = (from + i) * row_step + targets[i] * class_step;
      ref_load_run(dtype, work->self.data + element * bytes, 0, 1, to);
    }
  }
}

/* values[i] = -values[i] * weights[i]; what does not count stays 0. */
static void weigh(ref_lane lane, void* values, const void* weights, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    if (lane == REF_LANE_F32) {
      ((float*)values)[i] = 0 - ((float*)values)[i] * ((const float*)weights)[i];
    } else {
      ((double*)values)[i] = 0 - ((double*)values)[i] * ((const double*)weights)[i];
    }
  }
}

static void divide(ref_lane lane, ref_value* sum, const ref_value* total) {
  if (lane == REF_LANE_F32) {
    sum->f32 /= total->f32;
  } else {
    sum->f64 /= total->f64;
  }
}

static void loss_execute(const void* payload) {
  const loss_work* work = payload;
  const nll_batch* batch = &work->batch;
  const uint32_t dtype = work->self.dtype;
  const ref_lane lane = ref_lane_of(dtype);
  const int each = work->output.ndim == 1;
  int64_t targets[REF_CHUNK];
  double values[REF_CHUNK];
  double weights[REF_CHUNK];
  ref_value sum = {.i64 = 0}; /* all bits 0: zero in every lane */
  ref_value total = {.i64 = 0};
  ref_axis output_axis;
  ref_axis_of(&work->output, ~0u, &output_axis);
  for (int64_t first = 0; first < batch->batch; first += REF_CHUNK) {
    const int64_t left = batch->batch - first;
    const int64_t count = left < REF_CHUNK ? left : REF_CHUNK;
    ref_nll_targets(batch, first, count, targets);
    ref_nll_weights(batch, lane, targets, count, weights);
    load_named(work, first, targets, count, values);
    weigh(lane, values, weights, count);
    if (each) {
      ref_store(dtype, work->output.data, &output_axis, first, count, values);
    } else {
      ref_fold_sum[lane].run(&sum, NULL, values, count);
      ref_fold_sum[lane].run(&total, NULL, weights, count);
    }
  }
  ref_store_run(dtype, work->total.data, 0, 1, &total);
  if (!each) {
    if (batch->reduction == NLL_MEAN) {
      divide(lane, &sum, &total);
    }
    ref_store_run(dtype, work->output.data, 0, 1, &sum);
  }
}

static fl_status check_loss(const fl_kernel* kernel, const fl_call* call, fl_error* err) {
  FL_TRY(ref_nll_check(kernel, call, 0, err));
  FL_TRY(ref_nll_check_loss(kernel, call, 0, call->outs[0], err));
  if (call->outs[1]->ndim != 0) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: total_weight has %u dimensions, not 0", kernel->op,
                   (unsigned)call->outs[1]->ndim);
  }
  return FL_OK;
}

static fl_status run_loss(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  loss_work work;
  FL_TRY(ref_begin_run(kernel, stream, call, err));
  FL_TRY(ref_nll_batch(stream, call, 0, &work.batch, err));
  FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work.self, err));
  FL_TRY(ref_view_of(stream, call->outs[0], &work.output, err));
  FL_TRY(ref_view_of(stream, call->outs[1], &work.total, err));
  return ref_submit(stream, loss_execute, &work, sizeof work, err);
}

static const ref_op loss_op = {
    {
        .args = {{REF_TENSOR, 0},
                 {REF_TENSOR, REF_FIXED(FL_DTYPE_I64)},
                 {REF_TENSOR_OR_NONE, 0},
                 {REF_INT, 0},
                 {REF_INT, 0}},
        .outs = {{REF_TENSOR, 0}, {REF_TENSOR, 0}},
    },
    check_loss};

const fl_kernel ref_kernels_nll_loss[] = {
    REF_KERNEL("nll_loss_forward", 1, ref_rows_sums, FL_TIER_ACCURATE, 0, &loss_op, ref_plan_op, run_loss),
};
const uint32_t ref_kernels_nll_loss_count = REF_COUNT(ref_kernels_nll_loss);
