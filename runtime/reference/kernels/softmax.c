/*
 * softmax.c - softmax and log_softmax along one dimension.
 *
 * Every line is shifted by its largest element, so that no exponential overflows and the sum is at least one. A line
 * with NaN or +inf, or of nothing but -inf, becomes NaN throughout, as in ATen.
 */
#include <math.h>

#include "reduce.h"

/* The steps of one lane. */
typedef struct {
  /* Replaces values by exp(value - shift) and adds them to sum. */
  void (*exponentiate)(void* values, int64_t count, const void* shift, void* sum);
  /* Replaces values by value / sum. */
  void (*divide)(void* values, int64_t count, const void* sum);
  /* Replaces values by value - shift - log(sum). */
  void (*normalise_log)(void* values, int64_t count, const void* shift, const void* sum);
} softmax_steps;

static void exponentiate_f32(void* values, int64_t count, const void* shift, void* sum) {
  float* x = values;
  const float largest = *(const float*)shift;
  float total = 0;
  for (int64_t i = 0; i < count; i++) {
    x[i] = expf(x[i] - largest);
    total += x[i];
  }
  *(float*)sum += total;
}

static void divide_f32(void* values, int64_t count, const void* sum) {
  float* x = values;
  const float total = *(const float*)sum;
  for (int64_t i = 0; i < count; i++) {
    x[i] /= total;
  }
}

static void normalise_log_f32(void* values, int64_t count, const void* shift, const void* sum) {
  float* x = values;
  const float largest = *(const float*)shift;
  const float log_total = logf(*(const float*)sum);
  for (int64_t i = 0; i < count; i++) {
    x[i] = (x[i] - largest) - log_total;
  }
}

static void exponentiate_f64(void* values, int64_t count, const void* shift, void* sum) {
  double* x = values;
  const double largest = *(const double*)shift;
  double total = 0;
  for (int64_t i = 0; i < count; i++) {
    x[i] = exp(x[i] - largest);
    total += x[i];
  }
  *(double*)sum += total;
}

static void divide_f64(void* values, int64_t count, const void* sum) {
  double* x = values;
  const double total = *(const double*)sum;
  for (int64_t i = 0; i < count; i++) {
    x[i] /= total;
  }
}

static void normalise_log_f64(void* values, int64_t count, const void* shift, const void* sum) {
  double* x = values;
  const double largest = *(const double*)shift;
  const double log_total = log(*(const double*)sum);
  for (int64_t i = 0; i < count; i++) {
    x[i] = (x[i] - largest) - log_total;
  }
}

static const softmax_steps steps_of_lane[] = {
    [REF_LANE_F32] = {exponentiate_f32, divide_f32, normalise_log_f32},
    [REF_LANE_F64] = {exponentiate_f64, divide_f64, normalise_log_f64},
};

typedef struct {
  ref_signature signature; /* first: see kernel.h */
  int logarithm;
} softmax_op;

typedef struct {
  ref_view in;
  ref_view out;
  const softmax_op* op;
  uint32_t mask;
} softmax_work;

static int64_t chunk_at(const ref_axis* axis, int64_t first) {
  const int64_t left = axis->count - first;
  return left < REF_CHUNK ? left : REF_CHUNK;
}

static ref_value lowest(ref_lane lane) {
  ref_value value;
  if (lane == REF_LANE_F32) {
    value.f32 = -INFINITY;
  } else {
    value.f64 = -INFINITY;
  }
  return value;
}

static void softmax_line(const softmax_work* work, const char* from, const ref_axis* in, char* to,
                         const ref_axis* out) {
  const uint32_t dtype = work->in.dtype;
  const ref_lane lane = ref_lane_of(dtype);
  const softmax_steps* steps = &steps_of_lane[lane];
  double values[REF_CHUNK];
  ref_value shift = lowest(lane);
  ref_value sum = {.i64 = 0}; /* all bits 0: zero in every lane */
  for (int64_t first = 0; first < in->count; first += REF_CHUNK) {
    const int64_t count = chunk_at(in, first);
    ref_load(dtype, from, in, first, count, values);
    ref_fold_max[lane].run(&shift, NULL, values, count);
  }
  const int whole = in->count <= REF_CHUNK; /* then what is loaded stays, and each exponential is taken once */
  for (int64_t first = 0; first < in->count; first += REF_CHUNK) {
    const int64_t count = chunk_at(in, first);
    if (!whole) {
      ref_load(dtype, from, in, first, count, values);
    }
    steps->exponentiate(values, count, &shift, &sum);
  }
  for (int64_t first = 0; first < in->count; first += REF_CHUNK) {
    const int64_t count = chunk_at(in, first);
    if (!whole || work->op->logarithm) {
      ref_load(dtype, from, in, first, count, values);
    }
    if (work->op->logarithm) {
      steps->normalise_log(values, count, &shift, &sum);
    } else {
      ref_value again = {.i64 = 0};
      if (!whole) {
        steps->exponentiate(values, count, &shift, &again);
      }
      steps->divide(values, count, &sum);
    }
    ref_store(dtype, to, out, first, count, values);
  }
}

static void softmax_execute(const void* payload) {
  const softmax_work* work = payload;
  const ref_reduction in = ref_reduction_of(&work->in, work->mask);
  const ref_reduction out = ref_reduction_of(&work->out, work->mask);
  for (int64_t line = 0; line < in.kept.count; line++) {
    const char* from = ref_element(in.dtype, in.data, &in.kept, line);
    char* to = ref_element(out.dtype, out.data, &out.kept, line);
    softmax_line(work, from, &in.reduced, to, &out.reduced);
  }
}

static fl_status softmax_check(const fl_kernel* kernel, const fl_call* call, uint32_t* mask, fl_error* err) {
  ref_types types;
  FL_TRY(ref_check(kernel, call, &types, err));
  const fl_tensor* in = call->args[0].value.tensor;
  if (call->args[2].value.i != 0) {
    return fl_fail(err, FL_UNIMPLEMENTED, "%s: half_to_float is not offered", kernel->op);
  }
  FL_TRY(ref_dims_mask(kernel, &call->args[1], in->ndim, mask, err));
  return ref_check_shape(kernel, in, call->outs[0], err);
}

static fl_status softmax_plan(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                              fl_error* err) {
  uint32_t mask = 0;
  FL_TRY(ref_check_plan(device, out, err));
  FL_TRY(softmax_check(kernel, call, &mask, err));
  fl_plan_set(out, 0, 0, 0);
  return FL_OK;
}

static fl_status softmax_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  softmax_work work;
  work.op = kernel->user;
  FL_TRY(softmax_check(kernel, call, &work.mask, err));
  FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work.in, err));
  FL_TRY(ref_view_of(stream, call->outs[0], &work.out, err));
  if (work.out.numel == 0) {
    return FL_OK;
  }
  return ref_submit(stream, softmax_execute, &work, sizeof work, err);
}

#define SIGNATURE {.args = {{REF_TENSOR, 0}, {REF_INT, 0}, {REF_BOOL, 0}}, .outs = {{REF_TENSOR, 0}}}

static const softmax_op op_softmax = {SIGNATURE, 0};
static const softmax_op op_log_softmax = {SIGNATURE, 1};

const fl_kernel ref_kernels_softmax[] = {
    REF_KERNEL("_softmax", 1, ref_rows_sums, FL_TIER_ACCURATE, 0, &op_softmax, softmax_plan, softmax_run),
    REF_KERNEL("_log_softmax", 1, ref_rows_sums, FL_TIER_ACCURATE, 0, &op_log_softmax, softmax_plan, softmax_run),
};
const uint32_t ref_kernels_softmax_count = REF_COUNT(ref_kernels_softmax);
