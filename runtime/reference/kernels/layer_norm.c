/*
 * layer_norm.c - native_layer_norm over the trailing dimensions, with the mean and 1 / sqrt(variance + eps) of every
 * row as further outputs. Two passes, as in variance.c; the variance divides by n.
 */
#include <math.h>

#include "reduce.h"

typedef struct {
  ref_view in;
  ref_view weight;
  ref_view bias;
  ref_view out;
  ref_view mean;
  ref_view rstd;
  double eps;
  uint32_t mask; /* the normalised dimensions */
  int has_weight;
  int has_bias;
} norm_work;

/* mean and 1 / sqrt(variance + eps) of one row, in its lane. A row of no elements has mean 0 and NaN, as in ATen. */
static void row_statistics(const norm_work* work, const ref_reduction* in, int64_t row, ref_value* mean,
                           ref_value* rstd) {
  const ref_lane lane = ref_lane_of(in->dtype);
  const int64_t elements = in->reduced.count;
  ref_value sum = {.i64 = 0}; /* all bits 0: zero in every lane */
  ref_value squares = {.i64 = 0};
  ref_fold_block(in, &ref_fold_sum[lane], row, 1, &sum, &sum);
  if (lane == REF_LANE_F32) {
    mean->f32 = elements == 0 ? 0 : sum.f32 / (float)elements;
  } else {
    mean->f64 = elements == 0 ? 0 : sum.f64 / (double)elements;
  }
  ref_fold_block(in, &ref_fold_squares[lane], row, 1, mean, &squares);
  if (lane == REF_LANE_F32) {
    const float variance = squares.f32 / (float)elements;
    rstd->f32 = 1 / sqrtf(variance + (float)work->eps);
  } else {
    const double variance = squares.f64 / (double)elements;
    rstd->f64 = 1 / sqrt(variance + work->eps);
  }
}

/* values[i] = (values[i] - mean) * rstd * weight[i] + bias[i], in place. */
#define NORM_APPLY(name, ACC, member)                                                                          \
  static void apply_##name(ACC* values, const ACC* weight, const ACC* bias, int64_t count, ref_value mean,     \
                           ref_value rstd) {                                                                   \
    for (int64_t i = 0; i < count; i++) {                                                                      \
      const ACC normal = (values[i] - mean.member) * rstd.member;                                              \
      const ACC scaled = weight == NULL ? normal : normal * weight[i];                                         \
      values[i] = bias == NULL ? scaled : scaled + bias[i];                                                    \
    }                                                                                                          \
  }

NORM_APPLY(f32, float, f32)
NORM_APPLY(f64, double, f64)

/* Loads elements first ... of a one-row parameter, or says NULL where there is none. */
static const void* load_parameter(int present, const ref_view* view, int64_t first, int64_t count, void* values) {
  ref_axis axis;
  if (!present) {
    return NULL;
  }
  ref_axis_of(view, ~0u, &axis);
  ref_load(view->dtype, view->data, &axis, first, count, values);
  return values;
}

static void normalise_row(const norm_work* work, const char* from, const ref_axis* in, char* to, const ref_axis* out,
                          ref_value mean, ref_value rstd) {
  const uint32_t dtype = work->in.dtype;
  double values[REF_CHUNK];
  double weights[REF_CHUNK];
  double biases[REF_CHUNK];
  for (int64_t first = 0; first < in->count; first += REF_CHUNK) {
    const int64_t left = in->count - first;
    const int64_t count = left < REF_CHUNK ? left : REF_CHUNK;
    const void* weight = load_parameter(work->has_weight, &work->weight, first, count, weights);
    const void* bias = load_parameter(work->has_bias, &work->bias, first, count, biases);
    ref_load(dtype, from, in, first, count, values);
    if (ref_lane_of(dtype) == REF_LANE_F32) {
      apply_f32((float*)values, weight, bias, count, mean, rstd);
    } else {
      apply_f64(values, weight, bias, count, mean, rstd);
    }
    ref_store(dtype, to, out, first, count, values);
  }
}

static void norm_execute(const void* payload) {
  const norm_work* work = payload;
  const ref_reduction in = ref_reduction_of(&work->in, work->mask);
  const ref_reduction out = ref_reduction_of(&work->out, work->mask);
  ref_axis mean_axis;
  ref_axis rstd_axis;
  ref_axis_of(&work->mean, ~0u, &mean_axis);
  ref_axis_of(&work->rstd, ~0u, &rstd_axis);
  for (int64_t row = 0; row < in.kept.count; row++) {
    ref_value mean;
    ref_value rstd;
    row_statistics(work, &in, row, &mean, &rstd);
    if (in.reduced.count > 0) {
      const char* from = ref_element(in.dtype, in.data, &in.kept, row);
      char* to = ref_element(out.dtype, out.data, &out.kept, row);
      normalise_row(work, from, &in.reduced, to, &out.reduced, mean, rstd);
    }
    ref_store(work->mean.dtype, work->mean.data, &mean_axis, row, 1, &mean);
    ref_store(work->rstd.dtype, work->rstd.data, &rstd_axis, row, 1, &rstd);
  }
}

/* A parameter, where present, has exactly the normalised shape. */
static fl_status check_parameter(const fl_kernel* kernel, const fl_arg* parameter, const fl_arg* shape,
                                 fl_error* err) {
  if (parameter->tag == FL_TAG_NONE) {
    return FL_OK;
  }
  const fl_tensor* tensor = parameter->value.tensor;
  int fits = tensor->ndim == shape->count;
  for (uint32_t i = 0; fits && i < shape->count; i++) {
    fits = tensor->sizes[i] == shape->value.ints[i];
  }
  if (!fits) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: weight or bias has not the normalised shape", kernel->op);
  }
  return FL_OK;
}

static fl_status norm_check(const fl_kernel* kernel, const fl_call* call, uint32_t* mask, fl_error* err) {
  ref_types types;
  FL_TRY(ref_check(kernel, call, &types, err));
  const fl_tensor* in = call->args[0].value.tensor;
  const fl_arg* shape = &call->args[1];
  if (shape->count < 1 || shape->count > in->ndim || shape->value.ints == NULL) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: %u normalised dimensions of %u", kernel->op, (unsigned)shape->count,
                   (unsigned)in->ndim);
  }
  const uint32_t leading = in->ndim - shape->count;
  *mask = 0;
  for (uint32_t i = 0; i < shape->count; i++) {
    if (in->sizes[leading + i] != shape->value.ints[i]) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "%s: the input does not end in the normalised shape", kernel->op);
    }
    *mask |= 1u << (leading + i);
  }
  FL_TRY(check_parameter(kernel, &call->args[2], shape, err));
  FL_TRY(check_parameter(kernel, &call->args[3], shape, err));
  FL_TRY(ref_check_shape(kernel, in, call->outs[0], err));
  FL_TRY(ref_check_keepdim(kernel, in, *mask, call->outs[1], err));
  return ref_check_keepdim(kernel, in, *mask, call->outs[2], err);
}

static fl_status norm_plan(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                           fl_error* err) {
  uint32_t mask = 0;
  FL_TRY(ref_check_plan(device, out, err));
  FL_TRY(norm_check(kernel, call, &mask, err));
  fl_plan_set(out, 0, 0, 0);
  return FL_OK;
}

static fl_status view_of_parameter(fl_stream stream, const fl_arg* parameter, ref_view* view, int* present,
                                   fl_error* err) {
  *present = parameter->tag == FL_TAG_TENSOR;
  if (!*present) {
    view->ndim = 0;
    view->numel = 0;
    return FL_OK;
  }
  return ref_view_of(stream, parameter->value.tensor, view, err);
}

static fl_status norm_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  norm_work work;
  FL_TRY(norm_check(kernel, call, &work.mask, err));
  FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work.in, err));
  FL_TRY(view_of_parameter(stream, &call->args[2], &work.weight, &work.has_weight, err));
  FL_TRY(view_of_parameter(stream, &call->args[3], &work.bias, &work.has_bias, err));
  FL_TRY(ref_view_of(stream, call->outs[0], &work.out, err));
  FL_TRY(ref_view_of(stream, call->outs[1], &work.mean, err));
  FL_TRY(ref_view_of(stream, call->outs[2], &work.rstd, err));
  work.eps = call->args[4].value.f;
  if (work.mean.numel == 0) {
    return FL_OK;
  }
  return ref_submit(stream, norm_execute, &work, sizeof work, err);
}

static const ref_signature signature = {
    .args = {{REF_TENSOR, 0}, {REF_INT_LIST, 0}, {REF_TENSOR_OR_NONE, 0}, {REF_TENSOR_OR_NONE, 0}, {REF_FLOAT, 0}},
    .outs = {{REF_TENSOR, 0}, {REF_TENSOR, 1}, {REF_TENSOR, 1}},
};

const fl_kernel ref_kernels_layer_norm[] = {
    REF_KERNEL("native_layer_norm", 2, ref_rows_statistics, FL_TIER_ACCURATE, 0, &signature, norm_plan, norm_run),
};
const uint32_t ref_kernels_layer_norm_count = REF_COUNT(ref_kernels_layer_norm);
