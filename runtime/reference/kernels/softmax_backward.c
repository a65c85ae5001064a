/*
 * softmax_backward.c - what softmax and log_softmax give back along one dimension, from their own output.
 *
 * softmax: output * (grad - sum(grad * output)). log_softmax: grad - exp(output) * sum(grad). Lines of at most REF_CHUNK
 * elements are read once.
 */
#include <math.h>

#include "reduce.h"

/* The steps of one lane. */
typedef struct {
  /* products = grad * output. */
  void (*multiply)(const void* grad, const void* output, int64_t count, void* products);
  /* grad becomes output * (grad - sum). */
  void (*finish)(void* grad, const void* output, int64_t count, const void* sum);
  /* grad becomes grad - exp(output) * sum. */
  void (*finish_log)(void* grad, const void* output, int64_t count, const void* sum);
} backward_steps;

#define STEPS(name, ACC, EXP)                                                                                   \
  REF_HOT static void multiply_##name(const void* grad, const void* output, int64_t count, void* products) {    \
    const ACC* g = grad;                                                                                        \
    const ACC* y = output;                                                                                      \
    ACC* to = products;                                                                                         \
    for (int64_t i = 0; i < count; i++) {                                                                       \
      to[i] = g[i] * y[i];                                                                                      \
    }                                                                                                           \
  }                                                                                                             \
  REF_HOT static void finish_##name(void* grad, const void* output, int64_t count, const void* sum) {           \
    ACC* g = grad;                                                                                              \
    const ACC* y = output;                                                                                      \
    const ACC total = *(const ACC*)sum;                                                                         \
    for (int64_t i = 0; i < count; i++) {                                                                       \
      g[i] = y[i] * (g[i] - total);                                                                             \
    }                                                                                                           \
  }                                                                                                             \
  static void finish_log_##name(void* grad, const void* output, int64_t count, const void* sum) {               \
    ACC* g = grad;                                                                                              \
    const ACC* y = output;                                                                                      \
    const ACC total = *(const ACC*)sum;                                                                         \
    for (int64_t i = 0; i < count; i++) {                                                                       \
      g[i] -= EXP(y[i]) * total;                                                                                \
    }                                                                                                           \
  }

STEPS(f32, float, expf)
STEPS(f64, double, exp)

static const backward_steps steps_of_lane[] = {
    [REF_LANE_F32] = {multiply_f32, finish_f32, finish_log_f32},
    [REF_LANE_F64] = {multiply_f64, finish_f64, finish_log_f64},
};

typedef struct {
  ref_signature signature; /* first: see kernel.h */
  int logarithm;
} backward_op;

typedef struct {
  ref_view grad;
  ref_view output;
  ref_view out;
  const backward_op* op;
  uint32_t mask;
} backward_work;

/* One line: where it begins in each tensor, and how it goes on. */
typedef struct {
  const char* grad;
  const char* output;
  char* out;
  const ref_axis* grad_axis;
  const ref_axis* output_axis;
  const ref_axis* out_axis;
} line;

static void backward_line(const backward_work* work, const line* at) {
  const uint32_t dtype = work->out.dtype;
  const ref_lane lane = ref_lane_of(dtype);
  const backward_steps* steps = &steps_of_lane[lane];
  const int logarithm = work->op->logarithm;
  const int64_t length = at->grad_axis->count;
  const int whole = length <= REF_CHUNK; /* then what is loaded stays */
  double grad[REF_CHUNK];
  double output[REF_CHUNK];
  double products[REF_CHUNK];
  ref_value sum = {.i64 = 0}; /* all bits 0: zero in every lane */
  for (int64_t first = 0; first < length; first += REF_CHUNK) {
    const int64_t left = length - first;
    const int64_t count = left < REF_CHUNK ? left : REF_CHUNK;
    ref_load(dtype, at->grad, at->grad_axis, first, count, grad);
    if (logarithm) {
      ref_fold_sum[lane].run(&sum, NULL, grad, count);
      continue;
    }
    ref_load(dtype, at->output, at->output_axis, first, count, output);
    steps->multiply(grad, output, count, products);
    ref_fold_sum[lane].run(&sum, NULL, products, count);
  }
  for (int64_t first = 0; first < length; first += REF_CHUNK) {
    const int64_t left = length - first;
    const int64_t count = left < REF_CHUNK ? left : REF_CHUNK;
    if (!whole) {
      ref_load(dtype, at->grad, at->grad_axis, first, count, grad);
    }
    if (!whole || logarithm) {
      ref_load(dtype, at->output, at->output_axis, first, count, output);
    }
    if (logarithm) {
      steps->finish_log(grad, output, count, &sum);
    } else {
      steps->finish(grad, output, count, &sum);
    }
    ref_store(dtype, at->out, at->out_axis, first, count, grad);
  }
}

static void backward_execute(const void* payload) {
  const backward_work* work = payload;
  const uint32_t dtype = work->out.dtype;
  const ref_reduction grad = ref_reduction_of(&work->grad, work->mask);
  const ref_reduction output = ref_reduction_of(&work->output, work->mask);
  const ref_reduction out = ref_reduction_of(&work->out, work->mask);
  for (int64_t row = 0; row < grad.kept.count; row++) {
    const line at = {
        .grad = ref_element(dtype, grad.data, &grad.kept, row),
        .output = ref_element(dtype, output.data, &output.kept, row),
        .out = ref_element(dtype, out.data, &out.kept, row),
        .grad_axis = &grad.reduced,
        .output_axis = &output.reduced,
        .out_axis = &out.reduced,
    };
    backward_line(work, &at);
  }
}

static fl_status backward_check(const fl_kernel* kernel, const fl_call* call, uint32_t* mask, fl_error* err) {
  ref_types types;
  FL_TRY(ref_check(kernel, call, &types, err));
  const fl_tensor* grad = call->args[0].value.tensor;
  FL_TRY(ref_dims_mask(kernel, &call->args[2], grad->ndim, mask, err));
  FL_TRY(ref_check_shape(kernel, grad, call->args[1].value.tensor, err));
  return ref_check_shape(kernel, grad, call->outs[0], err);
}

static fl_status backward_plan(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                               fl_error* err) {
  uint32_t mask = 0;
  FL_TRY(ref_check_plan(device, out, err));
  FL_TRY(backward_check(kernel, call, &mask, err));
  fl_plan_set(out, 0, 0, 0);
  return FL_OK;
}

static fl_status backward_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  backward_work work;
  work.op = kernel->user;
  FL_TRY(backward_check(kernel, call, &work.mask, err));
  FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work.grad, err));
  FL_TRY(ref_view_of(stream, call->args[1].value.tensor, &work.output, err));
  FL_TRY(ref_view_of(stream, call->outs[0], &work.out, err));
  if (work.out.numel == 0) {
    return FL_OK;
  }
  return ref_submit(stream, backward_execute, &work, sizeof work, err);
}

#define SIGNATURE {.args = {{REF_TENSOR, 0}, {REF_TENSOR, 0}, {REF_INT, 0}}, .outs = {{REF_TENSOR, 0}}}

static const backward_op op_softmax = {SIGNATURE, 0};
static const backward_op op_log_softmax = {SIGNATURE, 1};

#define BACKWARD(OP, USER) REF_KERNEL(OP, 1, ref_rows_sums, FL_TIER_ACCURATE, 0, USER, backward_plan, backward_run)

const fl_kernel ref_kernels_softmax_backward[] = {
    BACKWARD("_softmax_backward_data", &op_softmax),
    BACKWARD("_log_softmax_backward_data", &op_log_softmax),
};
const uint32_t ref_kernels_softmax_backward_count = REF_COUNT(ref_kernels_softmax_backward);
