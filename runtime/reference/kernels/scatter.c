/*
 * scatter.c - scatter_add: self with src added at the places that index names along one dimension.
 *
 * Additions happen in the row-major order of the index, so duplicates give the same bits every time. Halves add up in
 * float in the workspace and are rounded once at the end. An index outside the dimension adds nothing [FL-KERNEL-013].
 */
#include "elements.h"
#include "move.h"

static fl_status check_scatter_add(const fl_kernel* kernel, const fl_call* call, fl_error* err) {
  const fl_tensor* self = call->args[0].value.tensor;
  const fl_tensor* index = call->args[2].value.tensor;
  const fl_tensor* src = call->args[3].value.tensor;
  const fl_tensor* out = call->outs[0];
  int64_t dim = call->args[1].value.i;
  int64_t rank = self->ndim == 0 ? 1 : (int64_t)self->ndim;
  if (dim < 0 || dim >= rank) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: no dimension %lld", kernel->op, (long long)dim);
  }
  if (self->ndim != out->ndim || self->ndim != index->ndim || self->ndim != src->ndim) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: tensors of different ranks", kernel->op);
  }
  for (uint32_t d = 0; d < self->ndim; d++) {
    int self_fits = self->sizes[d] == out->sizes[d];
    int index_fits = (int64_t)d == dim || index->sizes[d] <= self->sizes[d];
    int src_fits = index->sizes[d] <= src->sizes[d];
    if (!self_fits || !index_fits || !src_fits) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "%s: sizes do not fit in dimension %u", kernel->op, d);
    }
  }
  return FL_OK;
}

typedef struct scatter_work {
  ref_view out;
  ref_view sums; /* where the additions happen: out, or the workspace as float */
  ref_view self;
  ref_view index;
  ref_view src;
  uint32_t dim;
} scatter_work;

/* A line of the sums: `size` elements, `step` bytes apart. */
typedef struct line {
  int64_t size;
  int64_t step;
} line;

/* Operands: element 0 of the line, index, src. a is the sum so far, b what is added. */
#define SCATTER_LOOP(NAME, SUM, SRC, EXPRESSION)                                                      \
  static void scatter_##NAME(char* const* data, const int64_t* step, int64_t n, const void* context) { \
    const line* along = context;                                                                      \
    for (int64_t i = 0; i < n; i++) {                                                                 \
      int64_t position = ref_load_i64(data[1] + i * step[1]);                                         \
      if (position < 0 || position >= along->size) {                                                  \
        continue;                                                                                     \
      }                                                                                               \
      char* to = data[0] + i * step[0] + position * along->step;                                      \
      ref_##SUM a = ref_load_##SUM(to);                                                               \
      ref_##SRC b = ref_load_##SRC(data[2] + i * step[2]);                                            \
      ref_store_##SUM(to, EXPRESSION);                                                                \
    }                                                                                                 \
  }

SCATTER_LOOP(u8, u8, u8, add_i(a, b))
SCATTER_LOOP(i8, i8, i8, add_i(a, b))
SCATTER_LOOP(i16, i16, i16, add_i(a, b))
SCATTER_LOOP(i32, i32, i32, add_i(a, b))
SCATTER_LOOP(i64, i64, i64, add_i(a, b))
SCATTER_LOOP(f16, f32, f16, a + b)
SCATTER_LOOP(bf16, f32, bf16, a + b)
SCATTER_LOOP(f32, f32, f32, a + b)
SCATTER_LOOP(f64, f64, f64, a + b)

static const fl_iter_loop scatter_loops[REF_DTYPES] = {REF_NUMBER_LOOPS(scatter)};

static void execute_scatter_add(const void* payload) {
  const scatter_work* work = payload;
  ref_move(&work->sums, &work->self);
  uint32_t sum_bytes = fl_dtype_size(work->sums.dtype);
  line along = {work->sums.sizes[work->dim], work->sums.strides[work->dim] * (int64_t)sum_bytes};
  int64_t held[REF_MAX_NDIM];
  memcpy(held, work->sums.strides, sizeof held);
  held[work->dim] = 0;
  fl_iter iter;
  fl_iter_init(&iter, work->index.ndim, work->index.sizes);
  fl_iter_operand(&iter, work->sums.data, held, sum_bytes);
  fl_iter_operand(&iter, work->index.data, work->index.strides, sizeof(int64_t));
  fl_iter_operand(&iter, work->src.data, work->src.strides, fl_dtype_size(work->src.dtype));
  fl_iter_coalesce(&iter);
  fl_iter_run(&iter, scatter_loops[work->src.dtype], &along);
  if (work->sums.dtype != work->out.dtype) {
    ref_move(&work->out, &work->sums);
  }
}

static const ref_op scatter_add_op = {
    {{{REF_TENSOR, 0}, {REF_INT, 0}, {REF_TENSOR, REF_FIXED(FL_DTYPE_I64)}, {REF_TENSOR, 0}}, {{REF_TENSOR, 0}}},
    check_scatter_add};

/* Halves: a float for each element of the output. */
static uint64_t workspace_bytes(const fl_tensor* out) {
  if (out->dtype != FL_DTYPE_F16 && out->dtype != FL_DTYPE_BF16) {
    return 0;
  }
  return (uint64_t)out->numel * sizeof(float);
}

static fl_status plan_scatter_add(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                                  fl_error* err) {
  FL_TRY(ref_plan_op(kernel, device, call, out, err));
  fl_plan_set(out, workspace_bytes(call->outs[0]), sizeof(float), 0);
  return FL_OK;
}

/* Turns the output's view into that of the workspace: float, row-major. */
static void view_workspace(ref_view* view, char* workspace) {
  view->data = workspace;
  view->dtype = FL_DTYPE_F32;
  int64_t stride = 1;
  for (uint32_t d = view->ndim; d > 0; d--) {
    view->strides[d - 1] = stride;
    stride *= view->sizes[d - 1];
  }
}

static fl_status run_scatter_add(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  FL_TRY(ref_begin_run(kernel, stream, call, err));
  scatter_work work;
  memset(&work, 0, sizeof work);
  work.dim = (uint32_t)call->args[1].value.i;
  FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work.self, err));
  FL_TRY(ref_view_of(stream, call->args[2].value.tensor, &work.index, err));
  FL_TRY(ref_view_of(stream, call->args[3].value.tensor, &work.src, err));
  FL_TRY(ref_view_of(stream, call->outs[0], &work.out, err));
  ref_view_at_least_1d(&work.self);
  ref_view_at_least_1d(&work.index);
  ref_view_at_least_1d(&work.src);
  ref_view_at_least_1d(&work.out);
  work.sums = work.out;
  uint64_t needed = workspace_bytes(call->outs[0]);
  if (needed > 0) {
    char* workspace = NULL;
    FL_TRY(ref_workspace(stream, call, needed, &workspace, err));
    view_workspace(&work.sums, workspace);
  }
  return ref_submit(stream, execute_scatter_add, &work, sizeof work, err);
}

static const fl_kernel_row rows_scatter_add[9] = {
    REF_ROW(FL_DTYPE_F32, FL_DTYPE_F32), REF_ROW(FL_DTYPE_F64, FL_DTYPE_F64),  REF_ROW(FL_DTYPE_F32, FL_DTYPE_F16),
    REF_ROW(FL_DTYPE_F32, FL_DTYPE_BF16), REF_ROW(FL_DTYPE_I64, FL_DTYPE_I64), REF_ROW(FL_DTYPE_I32, FL_DTYPE_I32),
    REF_ROW(FL_DTYPE_I16, FL_DTYPE_I16), REF_ROW(FL_DTYPE_I8, FL_DTYPE_I8),    REF_ROW(FL_DTYPE_U8, FL_DTYPE_U8),
};

const fl_kernel ref_kernels_scatter[] = {
    REF_KERNEL("scatter_add", 1, rows_scatter_add, FL_TIER_ACCURATE, FL_KERNEL_INPLACE_OK, &scatter_add_op,
               plan_scatter_add, run_scatter_add),
};

const uint32_t ref_kernels_scatter_count = REF_COUNT(ref_kernels_scatter);
