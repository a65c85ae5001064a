/*
 * batch_norm.c - native_batch_norm: each channel shifted and scaled by its own mean and variance, or by running ones.
 *
 * Two passes for the batch's statistics, as in variance.c. The variance that normalises divides by n, the one that goes
 * into the running variance by n - 1.
 */
#include "batch_norm.h"

typedef struct {
  ref_view in;
  ref_view weight;
  ref_view bias;
  ref_view running_mean;
  ref_view running_var;
  ref_view out;
  ref_view save_mean;
  ref_view save_invstd;
  ref_view running_mean_out;
  ref_view running_var_out;
  int training;
  double momentum;
  double eps;
} norm_work;

/* What has become of one batch goes into the running numbers. `fresh` is spent. */
static void store_running(const norm_work* work, const ref_view* running, const ref_view* out, int64_t first,
                          int64_t count, void* fresh) {
  ref_channels old;
  if (out->numel > 0) {
    ref_load_channels(running, first, count, 0, old);
    ref_norm_steps_of[ref_lane_of(out->dtype)].update(fresh, old, count, work->momentum);
    ref_store_channels(out, first, count, fresh);
  }
}

/* Mean and 1 / sqrt(variance + eps) of the batch, saved and put into the running ones where these are wanted. */
static void batch_statistics(const norm_work* work, const ref_reduction* in, int64_t first, int64_t count, void* mean,
                             void* invstd) {
  const ref_lane lane = ref_lane_of(in->dtype);
  const ref_norm_steps* steps = &ref_norm_steps_of[lane];
  const ref_value zero = {.i64 = 0}; /* all bits 0: zero in every lane */
  const double elements = (double)in->reduced.count;
  ref_channels fresh;
  ref_fill_values(lane, zero, count, mean);
  ref_fold_block(in, &ref_fold_sum[lane], first, count, mean, mean);
  steps->divide(mean, count, elements);
  ref_fill_values(lane, zero, count, invstd);
  ref_fold_block(in, &ref_fold_squares[lane], first, count, mean, invstd);
  memcpy(fresh, invstd, (size_t)(count * ref_lane_bytes(lane)));
  steps->divide(fresh, count, elements - 1);
  store_running(work, &work->running_var, &work->running_var_out, first, count, fresh);
  memcpy(fresh, mean, (size_t)(count * ref_lane_bytes(lane)));
  store_running(work, &work->running_mean, &work->running_mean_out, first, count, fresh);
  steps->divide(invstd, count, elements);
  steps->invert(invstd, count, work->eps);
  ref_store_channels(&work->save_mean, first, count, mean);
  ref_store_channels(&work->save_invstd, first, count, invstd);
}

/* One element of all channels of a block at a time. */
static void apply_across(const ref_reduction* in, const ref_reduction* out, int64_t first, int64_t count,
                         const void* mean, const void* scale, const void* shift) {
  ref_channels values;
  for (int64_t k = 0; k < in->reduced.count; k++) {
    const char* from = ref_element(in->dtype, in->data, &in->reduced, k);
    char* to = ref_element(out->dtype, out->data, &out->reduced, k);
    ref_load(in->dtype, from, &in->kept, first, count, values);
    ref_norm_steps_of[ref_lane_of(in->dtype)].apply(values, mean, scale, shift, 1, count);
    ref_store(out->dtype, to, &out->kept, first, count, values);
  }
}

/* All elements of one channel. */
static void apply_along(const ref_reduction* in, const ref_reduction* out, int64_t channel, const void* mean,
                        const void* scale, const void* shift) {
  const char* from = ref_element(in->dtype, in->data, &in->kept, channel);
  char* to = ref_element(out->dtype, out->data, &out->kept, channel);
  double values[REF_CHUNK];
  for (int64_t k = 0; k < in->reduced.count; k += REF_CHUNK) {
    const int64_t left = in->reduced.count - k;
    const int64_t some = left < REF_CHUNK ? left : REF_CHUNK;
    ref_load(in->dtype, from, &in->reduced, k, some, values);
    ref_norm_steps_of[ref_lane_of(in->dtype)].apply(values, mean, scale, shift, 0, some);
    ref_store(out->dtype, to, &out->reduced, k, some, values);
  }
}

static void norm_execute(const void* payload) {
  const norm_work* work = payload;
  const ref_reduction in = ref_reduction_of(&work->in, REF_CHANNEL_MASK);
  const ref_reduction out = ref_reduction_of(&work->out, REF_CHANNEL_MASK);
  const ref_lane lane = ref_lane_of(in.dtype);
  const ref_norm_steps* steps = &ref_norm_steps_of[lane];
  const int64_t bytes = ref_lane_bytes(lane);
  ref_channels mean;
  ref_channels scale;
  ref_channels weight;
  ref_channels shift;
  for (int64_t first = 0; first < in.kept.count; first += REF_BLOCK) {
    const int64_t left = in.kept.count - first;
    const int64_t count = left < REF_BLOCK ? left : REF_BLOCK;
    if (work->training) {
      batch_statistics(work, &in, first, count, mean, scale);
    } else {
      ref_load_channels(&work->running_mean, first, count, 0, mean);
      ref_load_channels(&work->running_var, first, count, 1, scale);
      steps->invert(scale, count, work->eps);
    }
    ref_load_channels(&work->weight, first, count, 1, weight);
    ref_load_channels(&work->bias, first, count, 0, shift);
    steps->multiply(scale, scale, weight, count);
    if (ref_channels_are_close(&in, count)) {
      apply_across(&in, &out, first, count, mean, scale, shift);
      continue;
    }
    for (int64_t i = 0; i < count; i++) {
      const int64_t at = i * bytes;
      apply_along(&in, &out, first + i, (const char*)mean + at, (const char*)scale + at, (const char*)shift + at);
    }
  }
}

static fl_status check_norm(const fl_kernel* kernel, const fl_call* call, fl_error* err) {
  const fl_tensor* in = call->args[0].value.tensor;
  const int training = call->args[5].value.i != 0;
  if (in->ndim < 2) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: an input of %u dimensions has no channels", kernel->op,
                   (unsigned)in->ndim);
  }
  for (uint32_t slot = 1; slot <= 4; slot++) {
    FL_TRY(ref_check_channels(kernel, in, call, slot, err));
  }
  FL_TRY(ref_check_shape(kernel, in, call->outs[0], err));
  for (uint32_t place = 1; place <= 4; place++) {
    FL_TRY(ref_check_channel_out(kernel, in, call, place, err));
    const int is_wanted = call->outs[place]->numel > 0;
    const int has_source = training && (place <= 2 || call->args[place].tag == FL_TAG_TENSOR);
    if (is_wanted && !has_source) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "%s: output %u is wanted, but nothing gives it", kernel->op,
                     (unsigned)place);
    }
  }
  if (!training && (call->args[3].tag == FL_TAG_NONE || call->args[4].tag == FL_TAG_NONE)) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: no running statistics, and none of the batch asked for", kernel->op);
  }
  return FL_OK;
}

static fl_status run_norm(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  norm_work work;
  FL_TRY(ref_begin_run(kernel, stream, call, err));
  ref_view* const optional[] = {&work.weight, &work.bias, &work.running_mean, &work.running_var};
  ref_view* const outs[] = {&work.out, &work.save_mean, &work.save_invstd, &work.running_mean_out,
                            &work.running_var_out};
  FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work.in, err));
  for (uint32_t i = 0; i < REF_COUNT(optional); i++) {
    FL_TRY(ref_view_of_optional(stream, &call->args[1 + i], optional[i], err));
    optional[i]->dtype = call->outs[1]->dtype;
  }
  for (uint32_t i = 0; i < REF_COUNT(outs); i++) {
    FL_TRY(ref_view_of(stream, call->outs[i], outs[i], err));
  }
  work.training = call->args[5].value.i != 0;
  work.momentum = call->args[6].value.f;
  work.eps = call->args[7].value.f;
  return ref_submit(stream, norm_execute, &work, sizeof work, err);
}

static const ref_op norm_op = {
    {
        .args = {{REF_TENSOR, 0},
                 {REF_TENSOR_OR_NONE, 1},
                 {REF_TENSOR_OR_NONE, 1},
                 {REF_TENSOR_OR_NONE, 1},
                 {REF_TENSOR_OR_NONE, 1},
                 {REF_BOOL, 0},
                 {REF_FLOAT, 0},
                 {REF_FLOAT, 0}},
        .outs = {{REF_TENSOR, 0}, {REF_TENSOR, 1}, {REF_TENSOR, 1}, {REF_TENSOR, 1}, {REF_TENSOR, 1}},
    },
    check_norm};

const fl_kernel ref_kernels_batch_norm[] = {
    REF_KERNEL("native_batch_norm", 2, ref_rows_statistics, FL_TIER_ACCURATE, 0, &norm_op, ref_plan_op, run_norm),
};
const uint32_t ref_kernels_batch_norm_count = REF_COUNT(ref_kernels_batch_norm);
