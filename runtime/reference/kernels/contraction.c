/* contraction.c - mm, bmm and addmm: matrix products of any strides. */
#include "gemm.h"
#include "kernel.h"
#include "reduce.h"

/* Which argument is what, and how many dimensions the matrices have. */
typedef struct {
  ref_signature signature; /* first: see kernel.h */
  uint32_t left;
  uint32_t right;
  uint32_t ndim; /* 2, or 3 with a batch in front */
  int scaled;    /* 1: self is argument 0, beta and alpha are arguments 3 and 4 */
} contraction_op;

typedef struct {
  ref_view left;
  ref_view right;
  ref_view self;
  ref_view out;
  char* workspace;
  ref_value alpha; /* f64 or i64 */
  ref_value beta;
  int has_self; /* 0 where beta is 0, too: self is not read then, NaN or not */
} contraction_work;

static void set_source(ref_gemm_source* source, const ref_view* view, uint32_t line_dim, uint32_t depth_dim) {
  source->dtype = view->dtype;
  ref_axis_of(view, 1u << line_dim, &source->lines);
  ref_axis_of(view, 1u << depth_dim, &source->depths);
  source->gather = NULL;
  source->gather_along = NULL;
  source->user = NULL;
}

/* Element 0 of one matrix of a batch; the view itself has two dimensions where there is no batch. */
static char* matrix_of(const ref_view* view, int64_t batch) {
  const int64_t stride = view->ndim == 3 ? view->strides[0] : 0;
  if (view->numel == 0) {
    return view->data;
  }
  return view->data + batch * stride * (int64_t)fl_dtype_size(view->dtype);
}

static void contraction_execute(const void* payload) {
  const contraction_work* work = payload;
  const uint32_t row_dim = work->out.ndim - 2;
  const uint32_t column_dim = work->out.ndim - 1;
  const int64_t batches = work->out.ndim == 3 ? work->out.sizes[0] : 1;
  /* Set field by field: an initialiser would clear axes of REF_MAX_NDIM dimensions, which a small product feels. */
  ref_gemm_source left;
  ref_gemm_source right;
  ref_gemm_store store;
  set_source(&left, &work->left, row_dim, column_dim);
  set_source(&right, &work->right, column_dim, row_dim);
  store.dtype = work->out.dtype;
  store.alpha = work->alpha;
  store.beta = work->beta;
  ref_axis_of(&work->out, 1u << row_dim, &store.rows);
  ref_axis_of(&work->out, 1u << column_dim, &store.columns);
  store.addend = NULL;
  if (work->has_self) {
    store.addend = work->self.data;
    ref_axis_of(&work->self, 1u << row_dim, &store.addend_rows);
    ref_axis_of(&work->self, 1u << column_dim, &store.addend_columns);
  }
  const ref_gemm_sink sink = ref_gemm_store_sink(&store);
  for (int64_t batch = 0; batch < batches; batch++) {
    left.data = matrix_of(&work->left, batch);
    right.data = matrix_of(&work->right, batch);
    store.out = matrix_of(&work->out, batch);
    ref_gemm(&left, &right, &sink, work->workspace);
  }
}

static fl_status check_rank(const fl_kernel* kernel, const fl_tensor* tensor, uint32_t ndim, fl_error* err) {
  if (tensor->ndim == ndim) {
    return FL_OK;
  }
  return fl_fail(err, FL_INVALID_ARGUMENT, "%s: a matrix has %u dimensions, not %u", kernel->op,
                 (unsigned)tensor->ndim, (unsigned)ndim);
}

/* The call as a whole, and the bytes of workspace that it takes. */
static fl_status contraction_check(const fl_kernel* kernel, const fl_call* call, uint64_t* workspace, fl_error* err) {
  const contraction_op* op = kernel->user;
  ref_types types;
  FL_TRY(ref_check(kernel, call, &types, err));
  const fl_tensor* left = call->args[op->left].value.tensor;
  const fl_tensor* right = call->args[op->right].value.tensor;
  const fl_tensor* out = call->outs[0];
  FL_TRY(check_rank(kernel, left, op->ndim, err));
  FL_TRY(check_rank(kernel, right, op->ndim, err));
  FL_TRY(check_rank(kernel, out, op->ndim, err));
  const uint32_t row_dim = op->ndim - 2;
  const uint32_t column_dim = op->ndim - 1;
  const int64_t rows = left->sizes[row_dim];
  const int64_t depth = left->sizes[column_dim];
  const int64_t columns = right->sizes[column_dim];
  const int same_batch = op->ndim == 2 || (left->sizes[0] == out->sizes[0] && right->sizes[0] == out->sizes[0]);
  const int fits = right->sizes[row_dim] == depth && out->sizes[row_dim] == rows && out->sizes[column_dim] == columns;
  if (!same_batch || !fits) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: the shapes of the matrices do not fit each other", kernel->op);
  }
  if (op->scaled) {
    FL_TRY(ref_check_shape(kernel, out, call->args[0].value.tensor, err));
  }
  *workspace = 0;
  if (out->numel > 0) {
    *workspace = (uint64_t)ref_gemm_workspace(ref_lane_of(out->dtype), rows, columns, depth);
  }
  return FL_OK;
}

static fl_status contraction_plan(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                                  fl_error* err) {
  uint64_t workspace = 0;
  FL_TRY(ref_check_plan(device, out, err));
  FL_TRY(contraction_check(kernel, call, &workspace, err));
  fl_plan_set(out, workspace, 64, 0);
  return FL_OK;
}

static ref_value factor_of(const fl_arg* arg, uint32_t dtype) {
  ref_value factor;
  if (fl_dtype_is_float(dtype)) {
    factor.f64 = arg->value.f;
  } else {
    factor.i64 = arg->value.i;
  }
  return factor;
}

static int is_zero(ref_value factor, uint32_t dtype) {
  return fl_dtype_is_float(dtype) ? factor.f64 == 0.0 : factor.i64 == 0;
}

static fl_status contraction_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  const contraction_op* op = kernel->user;
  contraction_work work;
  uint64_t workspace = 0;
  FL_TRY(contraction_check(kernel, call, &workspace, err));
  FL_TRY(ref_view_of(stream, call->args[op->left].value.tensor, &work.left, err));
  FL_TRY(ref_view_of(stream, call->args[op->right].value.tensor, &work.right, err));
  FL_TRY(ref_view_of(stream, call->outs[0], &work.out, err));
  FL_TRY(ref_workspace(stream, call, workspace, &work.workspace, err));
  work.self = work.out;
  work.has_self = 0;
  work.alpha = ref_gemm_one(work.out.dtype);
  work.beta = ref_gemm_one(work.out.dtype);
  if (op->scaled) {
    FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work.self, err));
    work.beta = factor_of(&call->args[3], work.out.dtype);
    work.alpha = factor_of(&call->args[4], work.out.dtype);
    work.has_self = !is_zero(work.beta, work.out.dtype);
  }
  if (work.out.numel == 0) {
    return FL_OK;
  }
  return ref_submit(stream, contraction_execute, &work, sizeof work, err);
}

#define MATRICES {.args = {{REF_TENSOR, 0}, {REF_TENSOR, 0}}, .outs = {{REF_TENSOR, 0}}}
#define SCALED                                                                                          \
  {                                                                                                     \
    .args = {{REF_TENSOR, 0}, {REF_TENSOR, 0}, {REF_TENSOR, 0}, {REF_SCALAR, 0}, {REF_SCALAR, 0}},      \
    .outs = {{REF_TENSOR, 0}},                                                                          \
  }

static const contraction_op op_mm = {MATRICES, 0, 1, 2, 0};
static const contraction_op op_bmm = {MATRICES, 0, 1, 3, 0};
static const contraction_op op_addmm = {SCALED, 1, 2, 2, 1};

static const fl_kernel_row rows[] = {
    REF_ROW(FL_DTYPE_F32, FL_DTYPE_F32), REF_ROW(FL_DTYPE_F64, FL_DTYPE_F64), REF_ROW(FL_DTYPE_F32, FL_DTYPE_F16),
    REF_ROW(FL_DTYPE_F32, FL_DTYPE_BF16), REF_ROW(FL_DTYPE_I64, FL_DTYPE_I64), REF_ROW(FL_DTYPE_I64, FL_DTYPE_I32),
    REF_ROW(FL_DTYPE_I64, FL_DTYPE_I16), REF_ROW(FL_DTYPE_I64, FL_DTYPE_I8), REF_ROW(FL_DTYPE_I64, FL_DTYPE_U8),
};

const fl_kernel ref_kernels_contraction[] = {
    REF_KERNEL("mm", 1, rows, FL_TIER_ACCURATE, 0, &op_mm, contraction_plan, contraction_run),
    REF_KERNEL("bmm", 1, rows, FL_TIER_ACCURATE, 0, &op_bmm, contraction_plan, contraction_run),
    REF_KERNEL("addmm", 1, rows, FL_TIER_ACCURATE, 0, &op_addmm, contraction_plan, contraction_run),
};
const uint32_t ref_kernels_contraction_count = REF_COUNT(ref_kernels_contraction);
