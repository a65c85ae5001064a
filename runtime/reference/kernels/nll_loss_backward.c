/*
 * nll_loss_backward.c - zeros, but for the element of each row that its target names: -weight * grad_output, over
 * total_weight for the mean.
 */
#include "move.h"
#include "nll_loss.h"
#include "reduce.h"

typedef struct {
  nll_batch batch;
  ref_view grad_output;
  ref_view total;
  ref_view grad_input;
} backward_work;

/* weights[i] becomes -weights[i] * grads[i * step], over total for the mean. */
#define WEIGH(name, ACC)                                                                                     \
  static void weigh_##name(ACC* weights, const ACC* grads, int64_t step, int64_t count, const ACC* total) {  \
    for (int64_t i = 0; i < count; i++) {                                                                    \
      const ACC value = -weights[i] * grads[i * step];                                                       \
      weights[i] = total == NULL ? value : value / *total;                                                   \
    }                                                                                                        \
  }

WEIGH(f32, float)
WEIGH(f64, double)

static void store_named(const ref_view* to, int64_t from, const int64_t* targets, int64_t count,
                        const void* values) {
  const int64_t bytes = (int64_t)fl_dtype_size(to->dtype);
  const int64_t lane_bytes = ref_lane_bytes(ref_lane_of(to->dtype));
  const int64_t row_step = to->ndim == 2 ? to->strides[0] : 0;
  const int64_t class_step = to->strides[to->ndim - 1];
  for (int64_t i = 0; i < count; i++) {
    if (targets[i] >= 0) {
      const int64_t element = (from + i) * row_step + targets[i] * class_step;
      ref_store_run(to->dtype, to->data + element * bytes, 0, 1, (const char*)values + i * lane_bytes);
    }
  }
}

static void backward_execute(const void* payload) {
  static const char zero[sizeof(int64_t)];
  const backward_work* work = payload;
  const nll_batch* batch = &work->batch;
  const uint32_t dtype = work->grad_input.dtype;
  const ref_lane lane = ref_lane_of(dtype);
  const int each = work->grad_output.ndim == 1;
  int64_t targets[REF_CHUNK];
  double weights[REF_CHUNK];
  double grads[REF_CHUNK];
  ref_value total;
  ref_axis grad_axis;
  ref_axis_of(&work->grad_output, ~0u, &grad_axis);
  ref_load_run(dtype, work->total.data, 0, 1, &total);
  const void* divisor = batch->reduction == NLL_MEAN ? &total : NULL;
  ref_move_one(&work->grad_input, zero);
  for (int64_t first = 0; first < batch->batch; first += REF_CHUNK) {
    const int64_t left = batch->batch - first;
    const int64_t count = left < REF_CHUNK ? left : REF_CHUNK;
    ref_nll_targets(batch, first, count, targets);
    ref_nll_weights(batch, lane, targets, count, weights);
    ref_load(dtype, work->grad_output.data, &grad_axis, each ? first : 0, each ? count : 1, grads);
    if (lane == REF_LANE_F32) {
      weigh_f32((float*)weights, (const float*)grads, each, count, divisor);
    } else {
      weigh_f64(weights, grads, each, count, divisor);
    }
    store_named(&work->grad_input, first, targets, count, weights);
  }
}

static fl_status check_backward(const fl_kernel* kernel, const fl_call* call, fl_error* err) {
  const fl_tensor* self = call->args[1].value.tensor;
  FL_TRY(ref_nll_check(kernel, call, 1, err));
  FL_TRY(ref_nll_check_loss(kernel, call, 1, call->args[0].value.tensor, err));
  if (call->args[6].value.tensor->ndim != 0) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: total_weight has dimensions", kernel->op);
  }
  return ref_check_shape(kernel, self, call->outs[0], err);
}

static fl_status run_backward(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  backward_work work;
  FL_TRY(ref_begin_run(kernel, stream, call, err));
  FL_TRY(ref_nll_batch(stream, call, 1, &work.batch, err));
  FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work.grad_output, err));
  FL_TRY(ref_view_of(stream, call->args[6].value.tensor, &work.total, err));
  FL_TRY(ref_view_of(stream, call->outs[0], &work.grad_input, err));
  if (work.grad_input.numel == 0) {
    return FL_OK;
  }
  return ref_submit(stream, backward_execute, &work, sizeof work, err);
}

static const ref_op backward_op = {
    {
        .args = {{REF_TENSOR, 0},
                 {REF_TENSOR, 0},
                 {REF_TENSOR, REF_FIXED(FL_DTYPE_I64)},
                 {REF_TENSOR_OR_NONE, 0},
                 {REF_INT, 0},
                 {REF_INT, 0},
                 {REF_TENSOR, 0}},
        .outs = {{REF_TENSOR, 0}},
    },
    check_backward};

const fl_kernel ref_kernels_nll_loss_backward[] = {
    REF_KERNEL("nll_loss_backward", 1, ref_rows_sums, FL_TIER_ACCURATE, 0, &backward_op, ref_plan_op, run_backward),
};
const uint32_t ref_kernels_nll_loss_backward_count = REF_COUNT(ref_kernels_nll_loss_backward);
