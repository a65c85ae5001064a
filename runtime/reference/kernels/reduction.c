/* reduction.c - sum, mean, prod, amax, amin and any over a set of dimensions. */
#include <math.h>

#include "reduce.h"

/* What becomes of an accumulator once everything is folded in. */
typedef enum {
  FINISH_STORE, /* rounded to the output's dtype */
  FINISH_MEAN,  /* divided by the number of elements, then rounded */
  FINISH_TRUTH, /* 0 or 1 in whatever lane, stored as bool or u8 */
} finish_kind;

typedef struct {
  ref_signature signature; /* first: see kernel.h */
  const ref_fold* folds;   /* one per lane */
  ref_value initial[3];    /* one per lane: the result over no elements */
  finish_kind finish;
  int needs_elements; /* 1: there is no result over no elements */
} reduction_op;

typedef struct {
  ref_view in;
  ref_view out;
  const reduction_op* op;
  uint32_t mask;
} reduction_work;

static void finish_mean(ref_lane lane, int64_t elements, int64_t count, void* acc) {
  for (int64_t i = 0; i < count; i++) {
    if (lane == REF_LANE_F32) {
      ((float*)acc)[i] /= (float)elements;
    } else {
      ((double*)acc)[i] /= (double)elements;
    }
  }
}

static void finish_truth(ref_lane lane, int64_t count, const void* acc, int64_t* truth) {
  for (int64_t i = 0; i < count; i++) {
    switch (lane) {
      case REF_LANE_F32:
        truth[i] = ((const float*)acc)[i] != 0;
        break;
      case REF_LANE_F64:
        truth[i] = ((const double*)acc)[i] != 0;
        break;
      default:
        truth[i] = ((const int64_t*)acc)[i] != 0;
        break;
    }
  }
}

static void reduction_execute(const void* payload) {
  const reduction_work* work = payload;
  const reduction_op* op = work->op;
  const ref_lane lane = ref_lane_of(work->in.dtype);
  const ref_reduction reduction = ref_reduction_of(&work->in, work->mask);
  ref_axis out_axis;
  double acc[REF_BLOCK];
  int64_t truth[REF_BLOCK];
  ref_axis_of(&work->out, ~0u, &out_axis);
  for (int64_t first = 0; first < work->out.numel; first += REF_BLOCK) {
    const int64_t left = work->out.numel - first;
    const int64_t count = left < REF_BLOCK ? left : REF_BLOCK;
    const void* results = acc;
    ref_fill_values(lane, op->initial[lane], count, acc);
    ref_fold_block(&reduction, &op->folds[lane], first, count, acc, acc);
    if (op->finish == FINISH_MEAN) {
      finish_mean(lane, reduction.reduced.count, count, acc);
    }
    if (op->finish == FINISH_TRUTH) {
      finish_truth(lane, count, acc, truth);
      results = truth;
    }
    ref_store(work->out.dtype, work->out.data, &out_axis, first, count, results);
  }
}

static fl_status reduction_check(const fl_kernel* kernel, const fl_call* call, uint32_t* mask, fl_error* err) {
  const reduction_op* op = kernel->user;
  ref_types types;
  FL_TRY(ref_check(kernel, call, &types, err));
  const fl_tensor* in = call->args[0].value.tensor;
  const fl_tensor* out = call->outs[0];
  FL_TRY(ref_dims_mask(kernel, &call->args[1], in->ndim, mask, err));
  FL_TRY(ref_check_keepdim(kernel, in, *mask, out, err));
  if (op->needs_elements && in->numel == 0 && out->numel > 0) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: no element to take", kernel->op);
  }
  return FL_OK;
}

static fl_status reduction_plan(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                                fl_error* err) {
  uint32_t mask = 0;
  FL_TRY(ref_check_plan(device, out, err));
  FL_TRY(reduction_check(kernel, call, &mask, err));
  fl_plan_set(out, 0, 0, 0);
  return FL_OK;
}

static fl_status reduction_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  reduction_work work;
  work.op = kernel->user;
  FL_TRY(reduction_check(kernel, call, &work.mask, err));
  FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work.in, err));
  FL_TRY(ref_view_of(stream, call->outs[0], &work.out, err));
  if (work.out.numel == 0) {
    return FL_OK;
  }
  return ref_submit(stream, reduction_execute, &work, sizeof work, err);
}

#define DIMS_SIGNATURE(OUT_TYPE) {.args = {{REF_TENSOR, 0}, {REF_INT_LIST, 0}}, .outs = {{REF_TENSOR, OUT_TYPE}}}
#define DIM_SIGNATURE(OUT_TYPE) {.args = {{REF_TENSOR, 0}, {REF_INT, 0}}, .outs = {{REF_TENSOR, OUT_TYPE}}}
#define INITIAL(F, I)                                                                              \
  {                                                                                                \
    [REF_LANE_F32] = {.f32 = (float)(F)}, [REF_LANE_F64] = {.f64 = (F)}, [REF_LANE_I64] = {.i64 = (I)} \
  }

static const reduction_op op_sum = {DIMS_SIGNATURE(1), ref_fold_sum, INITIAL(0.0, 0), FINISH_STORE, 0};
static const reduction_op op_mean = {DIMS_SIGNATURE(0), ref_fold_sum, INITIAL(0.0, 0), FINISH_MEAN, 0};
static const reduction_op op_prod = {DIM_SIGNATURE(1), ref_fold_product, INITIAL(1.0, 1), FINISH_STORE, 0};
static const reduction_op op_amax = {DIMS_SIGNATURE(0), ref_fold_max, INITIAL(-INFINITY, INT64_MIN), FINISH_STORE, 1};
static const reduction_op op_amin = {DIMS_SIGNATURE(0), ref_fold_min, INITIAL(INFINITY, INT64_MAX), FINISH_STORE, 1};
static const reduction_op op_any = {DIM_SIGNATURE(1), ref_fold_any, INITIAL(0.0, 0), FINISH_TRUTH, 0};

/* Sums, running ones too, and products: floats keep their dtype, integers and bool widen to i64. */
static const fl_kernel_row rows_widening[] = {
    REF_ROW(FL_DTYPE_F32, FL_DTYPE_F32, FL_DTYPE_F32),   REF_ROW(FL_DTYPE_F64, FL_DTYPE_F64, FL_DTYPE_F64),
    REF_ROW(FL_DTYPE_F32, FL_DTYPE_F16, FL_DTYPE_F16),   REF_ROW(FL_DTYPE_F32, FL_DTYPE_BF16, FL_DTYPE_BF16),
    REF_ROW(FL_DTYPE_I64, FL_DTYPE_I64, FL_DTYPE_I64),   REF_ROW(FL_DTYPE_I64, FL_DTYPE_I32, FL_DTYPE_I64),
    REF_ROW(FL_DTYPE_I64, FL_DTYPE_I16, FL_DTYPE_I64),   REF_ROW(FL_DTYPE_I64, FL_DTYPE_I8, FL_DTYPE_I64),
    REF_ROW(FL_DTYPE_I64, FL_DTYPE_U8, FL_DTYPE_I64),    REF_ROW(FL_DTYPE_I64, FL_DTYPE_BOOL, FL_DTYPE_I64),
};

static const fl_kernel_row rows_floats[] = {
    REF_ROW(FL_DTYPE_F32, FL_DTYPE_F32),
    REF_ROW(FL_DTYPE_F64, FL_DTYPE_F64),
    REF_ROW(FL_DTYPE_F32, FL_DTYPE_F16),
    REF_ROW(FL_DTYPE_F32, FL_DTYPE_BF16),
};

/* any: bool, but u8 for u8, as ATen has it. */
static const fl_kernel_row rows_any[] = {
    REF_ROW(FL_DTYPE_NONE, FL_DTYPE_F32, FL_DTYPE_BOOL), REF_ROW(FL_DTYPE_NONE, FL_DTYPE_F64, FL_DTYPE_BOOL),
    REF_ROW(FL_DTYPE_NONE, FL_DTYPE_F16, FL_DTYPE_BOOL), REF_ROW(FL_DTYPE_NONE, FL_DTYPE_BF16, FL_DTYPE_BOOL),
    REF_ROW(FL_DTYPE_NONE, FL_DTYPE_I64, FL_DTYPE_BOOL), REF_ROW(FL_DTYPE_NONE, FL_DTYPE_I32, FL_DTYPE_BOOL),
    REF_ROW(FL_DTYPE_NONE, FL_DTYPE_I16, FL_DTYPE_BOOL), REF_ROW(FL_DTYPE_NONE, FL_DTYPE_I8, FL_DTYPE_BOOL),
    REF_ROW(FL_DTYPE_NONE, FL_DTYPE_U8, FL_DTYPE_U8),    REF_ROW(FL_DTYPE_NONE, FL_DTYPE_BOOL, FL_DTYPE_BOOL),
};

/* What has a file of its own goes by its own names; see reduce.h. */
#define LISTED(OP, N_TYPES, ROWS, TIER, NAME) \
  REF_KERNEL(OP, N_TYPES, ROWS, TIER, 0, &ref_##NAME##_signature, ref_##NAME##_plan, ref_##NAME##_run)

const fl_kernel ref_kernels_reduction[] = {
    REF_KERNEL("sum.dim_IntList", 2, rows_widening, FL_TIER_ACCURATE, 0, &op_sum, reduction_plan, reduction_run),
    REF_KERNEL("mean.dim", 1, rows_floats, FL_TIER_ACCURATE, 0, &op_mean, reduction_plan, reduction_run),
    REF_KERNEL("prod.dim_int", 2, rows_widening, FL_TIER_ACCURATE, 0, &op_prod, reduction_plan, reduction_run),
    REF_KERNEL("amax", 1, ref_rows_all, FL_TIER_EXACT, 0, &op_amax, reduction_plan, reduction_run),
    REF_KERNEL("amin", 1, ref_rows_all, FL_TIER_EXACT, 0, &op_amin, reduction_plan, reduction_run),
    REF_KERNEL("any.dim", 2, rows_any, FL_TIER_EXACT, 0, &op_any, reduction_plan, reduction_run),
    LISTED("argmax", 1, ref_rows_numbers, FL_TIER_EXACT, argmax),
    LISTED("cumsum", 2, rows_widening, FL_TIER_ACCURATE, cumsum),
    LISTED("var.correction", 1, rows_floats, FL_TIER_ACCURATE, variance),
};
const uint32_t ref_kernels_reduction_count = REF_COUNT(ref_kernels_reduction);
