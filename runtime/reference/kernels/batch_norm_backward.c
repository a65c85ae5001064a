/*
 * batch_norm_backward.c - what native_batch_norm gives back.
 *
 * With d = input - mean and r = 1 / sqrt(variance + eps): grad_bias = sum(g), grad_weight = r sum(g d), and
 * grad_input = (g - sum(g) / n - d r^2 sum(g d) / n) r weight. Where running statistics normalised, they did not depend
 * on the input, and grad_input = g r weight.
 */
#include "batch_norm.h"

typedef struct {
  ref_view grad;
  ref_view in;
  ref_view weight;
  ref_view mean;
  ref_view spread; /* 1 / sqrt(variance + eps) as it was saved, or the running variance */
  ref_view grad_input;
  ref_view grad_weight;
  ref_view grad_bias;
  int train;
  double eps;
} backward_work;

/* The tensors of one call by channel and element. */
typedef struct {
  ref_reduction grad;
  ref_reduction in;
  ref_reduction out;
} tensors;

/* The numbers of a block of channels. */
typedef struct {
  ref_channels mean;
  ref_channels invstd;
  ref_channels scale; /* invstd * weight */
  ref_channels total; /* sum(g), then over n */
  ref_channels cross; /* sum(g d), then over n and times invstd^2 */
} numbers;

/* The sums of a block, one element of all its channels at a time. */
static void sums_across(const tensors* of, int64_t first, int64_t count, numbers* block) {
  const ref_lane lane = ref_lane_of(of->in.dtype);
  ref_channels grad;
  ref_channels values;
  for (int64_t k = 0; k < of->in.reduced.count; k++) {
    ref_load(of->grad.dtype, ref_element(of->grad.dtype, of->grad.data, &of->grad.reduced, k), &of->grad.kept, first,
             count, grad);
    ref_load(of->in.dtype, ref_element(of->in.dtype, of->in.data, &of->in.reduced, k), &of->in.kept, first, count,
             values);
    ref_norm_steps_of[lane].cross(values, grad, block->mean, 1, count);
    ref_fold_sum[lane].columns(block->total, NULL, grad, count);
    ref_fold_sum[lane].columns(block->cross, NULL, values, count);
  }
}

/* The sums of channel `channel`, number `place` of its block. */
static void sums_along(const tensors* of, int64_t channel, int64_t place, numbers* block) {
  const ref_lane lane = ref_lane_of(of->in.dtype);
  const int64_t at = place * ref_lane_bytes(lane);
  const char* grad_line = ref_element(of->grad.dtype, of->grad.data, &of->grad.kept, channel);
  const char* in_line = ref_element(of->in.dtype, of->in.data, &of->in.kept, channel);
  double grad[REF_CHUNK];
  double values[REF_CHUNK];
  for (int64_t k = 0; k < of->in.reduced.count; k += REF_CHUNK) {
    const int64_t left = of->in.reduced.count - k;
    const int64_t some = left < REF_CHUNK ? left : REF_CHUNK;
    ref_load(of->grad.dtype, grad_line, &of->grad.reduced, k, some, grad);
    ref_load(of->in.dtype, in_line, &of->in.reduced, k, some, values);
    ref_norm_steps_of[lane].cross(values, grad, (const char*)block->mean + at, 0, some);
    ref_fold_sum[lane].run((char*)block->total + at, NULL, grad, some);
    ref_fold_sum[lane].run((char*)block->cross + at, NULL, values, some);
  }
}

static void give_back_across(const tensors* of, int train, int64_t first, int64_t count, const numbers* block) {
  const ref_lane lane = ref_lane_of(of->in.dtype);
  ref_channels grad;
  ref_channels values;
  for (int64_t k = 0; k < of->in.reduced.count; k++) {
    ref_load(of->grad.dtype, ref_element(of->grad.dtype, of->grad.data, &of->grad.reduced, k), &of->grad.kept, first,
             count, grad);
    ref_load(of->in.dtype, ref_element(of->in.dtype, of->in.data, &of->in.reduced, k), &of->in.kept, first, count,
             values);
    ref_norm_steps_of[lane].give_back(grad, train ? values : NULL, block->mean, block->total, block->cross,
                                      block->scale, 1, count);
    ref_store(of->out.dtype, ref_element(of->out.dtype, of->out.data, &of->out.reduced, k), &of->out.kept, first,
              count, grad);
  }
}

static void give_back_along(const tensors* of, int train, int64_t channel, int64_t place, const numbers* block) {
  const ref_lane lane = ref_lane_of(of->in.dtype);
  const int64_t at = place * ref_lane_bytes(lane);
  const char* grad_line = ref_element(of->grad.dtype, of->grad.data, &of->grad.kept, channel);
  const char* in_line = ref_element(of->in.dtype, of->in.data, &of->in.kept, channel);
  char* out_line = ref_element(of->out.dtype, of->out.data, &of->out.kept, channel);
  double grad[REF_CHUNK];
  double values[REF_CHUNK];
  for (int64_t k = 0; k < of->in.reduced.count; k += REF_CHUNK) {
    const int64_t left = of->in.reduced.count - k;
    const int64_t some = left < REF_CHUNK ? left : REF_CHUNK;
    ref_load(of->grad.dtype, grad_line, &of->grad.reduced, k, some, grad);
    ref_load(of->in.dtype, in_line, &of->in.reduced, k, some, values);
    ref_norm_steps_of[lane].give_back(grad, train ? values : NULL, (const char*)block->mean + at,
                                      (const char*)block->total + at, (const char*)block->cross + at,
                                      (const char*)block->scale + at, 0, some);
    ref_store(of->out.dtype, out_line, &of->out.reduced, k, some, grad);
  }
}

/* Mean, 1 / sqrt(variance + eps) and scale of a block. */
static void load_numbers(const backward_work* work, ref_lane lane, int64_t first, int64_t count, numbers* block) {
  const ref_norm_steps* steps = &ref_norm_steps_of[lane];
  ref_load_channels(&work->mean, first, count, 0, block->mean);
  ref_load_channels(&work->spread, first, count, 1, block->invstd);
  if (!work->train) {
    steps->invert(block->invstd, count, work->eps);
  }
  ref_load_channels(&work->weight, first, count, 1, block->scale);
  steps->multiply(block->scale, block->scale, block->invstd, count);
}

static void backward_block(const backward_work* work, const tensors* of, int64_t first, int64_t count) {
  const ref_lane lane = ref_lane_of(of->in.dtype);
  const ref_norm_steps* steps = &ref_norm_steps_of[lane];
  const ref_value zero = {.i64 = 0}; /* all bits 0: zero in every lane */
  const int close = ref_channels_are_close(&of->in, count);
  numbers block;
  load_numbers(work, lane, first, count, &block);
  ref_fill_values(lane, zero, count, block.total);
  ref_fill_values(lane, zero, count, block.cross);
  if (close) {
    sums_across(of, first, count, &block);
  }
  for (int64_t i = 0; i < count && !close; i++) {
    sums_along(of, first + i, i, &block);
  }
  ref_store_channels(&work->grad_bias, first, count, block.total);
  steps->multiply(block.cross, block.cross, block.invstd, count);
  ref_store_channels(&work->grad_weight, first, count, block.cross);
  if (work->grad_input.numel == 0) {
    return;
  }
  steps->multiply(block.cross, block.cross, block.invstd, count);
  steps->divide(block.total, count, (double)of->in.reduced.count);
  steps->divide(block.cross, count, (double)of->in.reduced.count);
  if (close) {
    give_back_across(of, work->train, first, count, &block);
  }
  for (int64_t i = 0; i < count && !close; i++) {
    give_back_along(of, work->train, first + i, i, &block);
  }
}

static void backward_execute(const void* payload) {
  const backward_work* work = payload;
  const tensors of = {
      .grad = ref_reduction_of(&work->grad, REF_CHANNEL_MASK),
      .in = ref_reduction_of(&work->in, REF_CHANNEL_MASK),
      .out = ref_reduction_of(&work->grad_input, REF_CHANNEL_MASK),
  };
  for (int64_t first = 0; first < of.in.kept.count; first += REF_BLOCK) {
    const int64_t left = of.in.kept.count - first;
    backward_block(work, &of, first, left < REF_BLOCK ? left : REF_BLOCK);
  }
}

static fl_status check_backward(const fl_kernel* kernel, const fl_call* call, fl_error* err) {
  const fl_tensor* in = call->args[1].value.tensor;
  const fl_tensor* grad_input = call->outs[0];
  const uint32_t needed = call->args[7].value.i != 0 ? 5 : 3; /* the first of the two statistics that normalised */
  if (in->ndim < 2) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: an input of %u dimensions has no channels", kernel->op,
                   (unsigned)in->ndim);
  }
  FL_TRY(ref_check_shape(kernel, in, call->args[0].value.tensor, err));
  for (uint32_t slot = 2; slot <= 6; slot++) {
    FL_TRY(ref_check_channels(kernel, in, call, slot, err));
  }
  if (!ref_is_unwanted(grad_input)) {
    FL_TRY(ref_check_shape(kernel, in, grad_input, err));
  }
  FL_TRY(ref_check_channel_out(kernel, in, call, 1, err));
  FL_TRY(ref_check_channel_out(kernel, in, call, 2, err));
  if (call->args[needed].tag == FL_TAG_NONE || call->args[needed + 1].tag == FL_TAG_NONE) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: arguments %u and %u are needed, one is absent", kernel->op,
                   (unsigned)needed, (unsigned)needed + 1);
  }
  return FL_OK;
}

static fl_status run_backward(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  backward_work work;
  FL_TRY(ref_begin_run(kernel, stream, call, err));
  work.train = call->args[7].value.i != 0;
  work.eps = call->args[8].value.f;
  const fl_arg* statistics = &call->args[work.train ? 5 : 3];
  FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work.grad, err));
  FL_TRY(ref_view_of(stream, call->args[1].value.tensor, &work.in, err));
  FL_TRY(ref_view_of_optional(stream, &call->args[2], &work.weight, err));
  work.weight.dtype = call->outs[1]->dtype;
  FL_TRY(ref_view_of_optional(stream, &statistics[0], &work.mean, err));
  FL_TRY(ref_view_of_optional(stream, &statistics[1], &work.spread, err));
  FL_TRY(ref_view_of(stream, call->outs[0], &work.grad_input, err));
  FL_TRY(ref_view_of(stream, call->outs[1], &work.grad_weight, err));
  FL_TRY(ref_view_of(stream, call->outs[2], &work.grad_bias, err));
  return ref_submit(stream, backward_execute, &work, sizeof work, err);
}

static const ref_op backward_op = {
    {
        .args = {{REF_TENSOR, 0},
                 {REF_TENSOR, 0},
                 {REF_TENSOR_OR_NONE, 1},
                 {REF_TENSOR_OR_NONE, 1},
                 {REF_TENSOR_OR_NONE, 1},
                 {REF_TENSOR_OR_NONE, 1},
                 {REF_TENSOR_OR_NONE, 1},
                 {REF_BOOL, 0},
                 {REF_FLOAT, 0}},
        .outs = {{REF_TENSOR, 0}, {REF_TENSOR, 1}, {REF_TENSOR, 1}},
    },
    check_backward};

const fl_kernel ref_kernels_batch_norm_backward[] = {
    REF_KERNEL("native_batch_norm_backward", 2, ref_rows_statistics, FL_TIER_ACCURATE, 0, &backward_op, ref_plan_op,
               run_backward),
};
const uint32_t ref_kernels_batch_norm_backward_count = REF_COUNT(ref_kernels_batch_norm_backward);
