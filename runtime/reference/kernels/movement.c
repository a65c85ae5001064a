/*
 * movement.c - cat, flip, constant_pad_nd and arange: elements change place or are counted, none is computed.
 */
#include <stdlib.h>

#include "move.h"

/* ---- cat ------------------------------------------------------------------------------------- */

/* Inputs have the output's sizes but along `dim`, where theirs add up to it. */
static fl_status check_cat(const fl_kernel* kernel, const fl_call* call, fl_error* err) {
  const fl_tensor* out = call->outs[0];
  int64_t dim = call->args[1].value.i;
  int64_t total = 0;
  if (dim < 0 || dim >= (int64_t)out->ndim) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: no dimension %lld", kernel->op, (long long)dim);
  }
  for (uint32_t i = 0; i < call->args[0].count; i++) {
    const fl_tensor* input = call->args[0].value.tensors[i];
    if (input->ndim != out->ndim) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "%s: input %u has another rank than the output", kernel->op, i);
    }
    for (uint32_t d = 0; d < out->ndim; d++) {
      if (d != (uint32_t)dim && input->sizes[d] != out->sizes[d]) {
        return fl_fail(err, FL_INVALID_ARGUMENT, "%s: input %u does not fit in dimension %u", kernel->op, i, d);
      }
    }
    if (__builtin_add_overflow(total, input->sizes[dim], &total)) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "%s: the sizes overflow", kernel->op);
    }
  }
  if (total != out->sizes[dim]) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: inputs of %lld in an output of %lld", kernel->op, (long long)total,
                   (long long)out->sizes[dim]);
  }
  return FL_OK;
}

typedef struct cat_work {
  ref_view out;
  uint32_t dim;
  uint32_t count;
  ref_view inputs[]; /* count */
} cat_work;

static void execute_cat(const void* payload) {
  const cat_work* work = payload;
  ref_view slice = work->out;
  for (uint32_t i = 0; i < work->count; i++) {
    int64_t size = work->inputs[i].sizes[work->dim];
    slice.sizes[work->dim] = size;
    ref_move(&slice, &work->inputs[i]);
    if (work->out.numel > 0) {
      slice.data += size * slice.strides[work->dim] * (int64_t)fl_dtype_size(slice.dtype);
    }
  }
}

static const ref_op cat_op = {{{{REF_TENSOR_LIST, 0}, {REF_INT, 0}}, {{REF_TENSOR, 0}}}, check_cat};

static fl_status run_cat(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  FL_TRY(ref_begin_run(kernel, stream, call, err));
  uint32_t count = call->args[0].count;
  uint64_t bytes = sizeof(cat_work) + count * sizeof(ref_view);
  cat_work* work = calloc(1, bytes);
  if (work == NULL) {
    return fl_fail(err, FL_OUT_OF_RESOURCES, "%s: no host memory for %u inputs", kernel->op, count);
  }
  work->dim = (uint32_t)call->args[1].value.i;
  work->count = count;
  fl_status status = ref_view_of(stream, call->outs[0], &work->out, err);
  for (uint32_t i = 0; i < count && status == FL_OK; i++) {
    status = ref_view_of(stream, call->args[0].value.tensors[i], &work->inputs[i], err);
  }
  if (status == FL_OK) {
    status = ref_submit(stream, execute_cat, work, bytes, err);
  }
  free(work);
  return status;
}

/* ---- flip ------------------------------------------------------------------------------------ */

typedef struct move_work {
  ref_view to;
  ref_view from; /* sizes unused */
} move_work;

static void execute_move(const void* payload) {
  const move_work* work = payload;
  ref_move(&work->to, &work->from);
}

static fl_status check_flip(const fl_kernel* kernel, const fl_call* call, fl_error* err) {
  FL_TRY(ref_check_shapes(kernel, call, err));
  uint32_t seen = 0;
  for (uint32_t i = 0; i < call->args[1].count; i++) {
    int64_t dim = call->args[1].value.ints[i];
    if (dim < 0 || dim >= (int64_t)call->outs[0]->ndim || (seen & (1u << dim)) != 0) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "%s: dimension %lld is wrong or named twice", kernel->op,
                     (long long)dim);
    }
    seen |= 1u << dim;
  }
  return FL_OK;
}

static const ref_op flip_op = {{{{REF_TENSOR, 0}, {REF_INT_LIST, 0}}, {{REF_TENSOR, 0}}}, check_flip};

static fl_status run_flip(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  FL_TRY(ref_begin_run(kernel, stream, call, err));
  move_work work;
  FL_TRY(ref_view_of(stream, call->outs[0], &work.to, err));
  FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work.from, err));
  for (uint32_t i = 0; i < call->args[1].count && work.to.numel > 0; i++) {
    uint32_t dim = (uint32_t)call->args[1].value.ints[i];
    int64_t last = (work.from.sizes[dim] - 1) * work.from.strides[dim];
    work.from.data += last * (int64_t)fl_dtype_size(work.from.dtype);
    work.from.strides[dim] = -work.from.strides[dim];
  }
  return ref_submit(stream, execute_move, &work, sizeof work, err);
}

/* ---- constant_pad_nd ------------------------------------------------------------------------- */

typedef struct pad_work {
  ref_view out;
  ref_view inside; /* where self goes */
  ref_view self;
  char value[sizeof(int64_t)];
} pad_work;

static void execute_pad(const void* payload) {
  const pad_work* work = payload;
  ref_move_one(&work->out, work->value);
  ref_move(&work->inside, &work->self);
}

/* `pad` holds (before, after) of the last dimension first. */
static int64_t pad_before(const fl_call* call, uint32_t dim) {
  return call->args[1].value.ints[2 * (call->outs[0]->ndim - 1 - dim)];
}

static int64_t pad_after(const fl_call* call, uint32_t dim) {
  return call->args[1].value.ints[2 * (call->outs[0]->ndim - 1 - dim) + 1];
}

static fl_status check_pad(const fl_kernel* kernel, const fl_call* call, fl_error* err) {
  const fl_tensor* self = call->args[0].value.tensor;
  const fl_tensor* out = call->outs[0];
  if (self->ndim != out->ndim || call->args[1].count != 2 * out->ndim) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: %u pads for ranks %u and %u", kernel->op, call->args[1].count,
                   self->ndim, out->ndim);
  }
  for (uint32_t d = 0; d < out->ndim; d++) {
    int64_t before = pad_before(call, d);
    int64_t after = pad_after(call, d);
    if (before < 0 || after < 0 || before > out->sizes[d] || out->sizes[d] - before - after != self->sizes[d]) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "%s: pads of dimension %u do not make the output's size", kernel->op, d);
    }
  }
  return FL_OK;
}

static const ref_op pad_op = {{{{REF_TENSOR, 0}, {REF_INT_LIST, 0}, {REF_SCALAR, 0}}, {{REF_TENSOR, 0}}}, check_pad};

static fl_status run_pad(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  FL_TRY(ref_begin_run(kernel, stream, call, err));
  pad_work work;
  FL_TRY(ref_view_of(stream, call->outs[0], &work.out, err));
  FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work.self, err));
  ref_store_number(work.value, work.out.dtype, ref_number(&call->args[2]));
  work.inside = work.out;
  for (uint32_t d = 0; d < work.out.ndim; d++) {
    work.inside.sizes[d] = work.self.sizes[d];
    if (work.self.numel > 0) {
      work.inside.data += pad_before(call, d) * work.out.strides[d] * (int64_t)fl_dtype_size(work.out.dtype);
    }
  }
  return ref_submit(stream, execute_pad, &work, sizeof work, err);
}

/* ---- arange ---------------------------------------------------------------------------------- */

typedef struct arange_work {
  ref_view out;
  fl_scalar start;
  fl_scalar step;
} arange_work;

/* Each value comes from its index: nothing adds up. Floating values are computed in double and rounded once. */
static void execute_arange(const void* payload) {
  const arange_work* work = payload;
  int64_t bytes = (int64_t)fl_dtype_size(work->out.dtype);
  for (int64_t i = 0; i < work->out.numel; i++) {
    fl_scalar value = work->start;
    value.i = (int64_t)((uint64_t)work->start.i + (uint64_t)i * (uint64_t)work->step.i);
    value.f = work->start.f + (double)i * work->step.f;
    ref_store_number(work->out.data + i * work->out.strides[0] * bytes, work->out.dtype, value);
  }
}

/* The host has made the output as long as start, end and step ask for. */
static fl_status check_arange(const fl_kernel* kernel, const fl_call* call, fl_error* err) {
  if (call->outs[0]->ndim != 1) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: the output has %u dimensions", kernel->op, call->outs[0]->ndim);
  }
  return FL_OK;
}

static const ref_op arange_op = {{{{REF_SCALAR, 0}, {REF_SCALAR, 0}, {REF_SCALAR, 0}}, {{REF_TENSOR, 0}}},
                                 check_arange};

static fl_status run_arange(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  FL_TRY(ref_begin_run(kernel, stream, call, err));
  arange_work work;
  FL_TRY(ref_view_of(stream, call->outs[0], &work.out, err));
  work.start = ref_number(&call->args[0]);
  work.step = ref_number(&call->args[2]);
  return ref_submit(stream, execute_arange, &work, sizeof work, err);
}

/* ---- The table ------------------------------------------------------------------------------- */

const fl_kernel ref_kernels_movement[] = {
    REF_KERNEL("cat", 1, ref_rows_all, FL_TIER_EXACT, 0, &cat_op, ref_plan_op, run_cat),
    REF_KERNEL("flip", 1, ref_rows_all, FL_TIER_EXACT, 0, &flip_op, ref_plan_op, run_flip),
    REF_KERNEL("constant_pad_nd", 1, ref_rows_all, FL_TIER_EXACT, 0, &pad_op, ref_plan_op, run_pad),
    REF_KERNEL("arange.start_step", 1, ref_rows_numbers, FL_TIER_ACCURATE, 0, &arange_op, ref_plan_op,
               run_arange),
};

const uint32_t ref_kernels_movement_count = REF_COUNT(ref_kernels_movement);
