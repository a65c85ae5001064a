/* nll_batch.c - shapes, targets and weights of nll_loss, forward and backward. */
#include "nll_loss.h"

static fl_status wrong_shape(const fl_kernel* kernel, const char* what, fl_error* err) {
  return fl_fail(err, FL_INVALID_ARGUMENT, "%s: %s has not the shape that self asks for", kernel->op, what);
}

fl_status ref_nll_check(const fl_kernel* kernel, const fl_call* call, uint32_t first, fl_error* err) {
  const fl_tensor* self = call->args[first].value.tensor;
  const fl_tensor* target = call->args[first + 1].value.tensor;
  const fl_arg* weight = &call->args[first + 2];
  const int64_t reduction = call->args[first + 3].value.i;
  if (self->ndim < 1 || self->ndim > 2) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: self has %u dimensions, not 1 or 2", kernel->op,
                   (unsigned)self->ndim);
  }
  if (target->ndim != self->ndim - 1 || (target->ndim == 1 && target->sizes[0] != self->sizes[0])) {
    return wrong_shape(kernel, "target", err);
  }
  if (weight->tag == FL_TAG_TENSOR) {
    const fl_tensor* tensor = weight->value.tensor;
    if (tensor->ndim != 1 || tensor->sizes[0] != self->sizes[self->ndim - 1]) {
      return wrong_shape(kernel, "weight", err);
    }
  }
  if (reduction < NLL_NONE || reduction > NLL_SUM) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: reduction %lld, not 0, 1 or 2", kernel->op, (long long)reduction);
  }
  return FL_OK;
}

fl_status ref_nll_check_loss(const fl_kernel* kernel, const fl_call* call, uint32_t first, const fl_tensor* tensor,
                             fl_error* err) {
  const fl_tensor* self = call->args[first].value.tensor;
  const uint32_t ndim = self->ndim == 2 && call->args[first + 3].value.i == NLL_NONE ? 1 : 0;
  if (tensor->ndim != ndim || (ndim == 1 && tensor->sizes[0] != self->sizes[0])) {
    return wrong_shape(kernel, "a loss", err);
  }
  return FL_OK;
}

fl_status ref_nll_batch(fl_stream stream, const fl_call* call, uint32_t first, nll_batch* batch, fl_error* err) {
  const fl_tensor* self = call->args[first].value.tensor;
  const fl_arg* weight = &call->args[first + 2];
  batch->has_weight = weight->tag == FL_TAG_TENSOR;
  batch->reduction = call->args[first + 3].value.i;
  batch->ignore_index = call->args[first + 4].value.i;
  batch->batch = self->ndim == 2 ? self->sizes[0] : 1;
  batch->classes = self->sizes[self->ndim - 1];
  batch->weight.numel = 0;
  FL_TRY(ref_view_of(stream, call->args[first + 1].value.tensor, &batch->target, err));
  return batch->has_weight ? ref_view_of(stream, weight->value.tensor, &batch->weight, err) : FL_OK;
}

void ref_nll_targets(const nll_batch* batch, int64_t from, int64_t count, int64_t* targets) {
  ref_axis axis;
  ref_axis_of(&batch->target, ~0u, &axis);
  ref_load(FL_DTYPE_I64, batch->target.data, &axis, from, count, targets);
  for (int64_t i = 0; i < count; i++) {
    const int64_t target = targets[i];
    const int counts = target != batch->ignore_index && target >= 0 && target < batch->classes;
    targets[i] = counts ? target : -1;
  }
}

void ref_nll_weights(const nll_batch* batch, ref_lane lane, const int64_t* targets, int64_t count, void* weights) {
  const int64_t bytes = ref_lane_bytes(lane);
  char* to = weights;
  for (int64_t i = 0; i < count; i++, to += bytes) {
    if (targets[i] >= 0 && batch->has_weight) {
      const uint32_t dtype = batch->weight.dtype;
      const int64_t offset = targets[i] * batch->weight.strides[0] * (int64_t)fl_dtype_size(dtype);
      ref_load_run(dtype, batch->weight.data + offset, 0, 1, to);
    } else if (lane == REF_LANE_F32) {
      *(float*)to = targets[i] >= 0 ? 1 : 0;
    } else {
      *(double*)to = targets[i] >= 0 ? 1 : 0;
    }
  }
}
