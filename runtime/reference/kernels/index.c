/*
 * index.c - index_select, gather and embedding: index values say what is copied.
 *
 * An index outside its dimension reads and writes nothing outside the tensors: what it should have picked becomes 0
 * [FL-KERNEL-013].
 */
#include "move.h"

/* Rank 0 counts as rank 1 here. */
static int dim_exists(const fl_tensor* tensor, int64_t dim) {
  int64_t rank = tensor->ndim == 0 ? 1 : (int64_t)tensor->ndim;
  return dim >= 0 && dim < rank;
}

/* The index at `from`, of dtype i32 or i64. */
static int64_t load_index(const char* from, uint32_t dtype) {
  return dtype == FL_DTYPE_I32 ? ref_load_i32(from) : ref_load_i64(from);
}

/* ---- index_select: a slice of self for each index -------------------------------------------- */

static fl_status check_index_select(const fl_kernel* kernel, const fl_call* call, fl_error* err) {
  const fl_tensor* self = call->args[0].value.tensor;
  const fl_tensor* index = call->args[2].value.tensor;
  const fl_tensor* out = call->outs[0];
  int64_t dim = call->args[1].value.i;
  if (!dim_exists(self, dim) || self->ndim != out->ndim || index->ndim > 1) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: ranks %u, %u and %u with dimension %lld", kernel->op, self->ndim,
                   index->ndim, out->ndim, (long long)dim);
  }
  for (uint32_t d = 0; d < out->ndim; d++) {
    int64_t expected = d == (uint32_t)dim ? index->numel : self->sizes[d];
    if (out->sizes[d] != expected) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "%s: size %lld of dimension %u is not %lld", kernel->op,
                     (long long)out->sizes[d], d, (long long)expected);
    }
  }
  return FL_OK;
}

typedef struct index_work {
  ref_view out;
  ref_view self;
  ref_view index;
  uint32_t dim;
} index_work;

static void execute_index_select(const void* payload) {
  const index_work* work = payload;
  static const char zero[sizeof(int64_t)];
  uint32_t dim = work->dim;
  if (work->out.numel == 0) {
    return;
  }
  int64_t bytes = (int64_t)fl_dtype_size(work->out.dtype);
  int64_t index_bytes = (int64_t)fl_dtype_size(work->index.dtype);
  ref_view to = work->out;
  ref_view from = work->self;
  to.sizes[dim] = 1;
  for (int64_t k = 0; k < work->out.sizes[dim]; k++) {
    int64_t position = load_index(work->index.data + k * work->index.strides[0] * index_bytes, work->index.dtype);
    to.data = work->out.data + k * work->out.strides[dim] * bytes;
    if (position < 0 || position >= work->self.sizes[dim]) {
      ref_move_one(&to, zero);
      continue;
    }
    from.data = work->self.data + position * work->self.strides[dim] * bytes;
    ref_move(&to, &from);
  }
}

static const ref_op index_select_op = {{{{REF_TENSOR, 0}, {REF_INT, 0}, {REF_TENSOR, 1}}, {{REF_TENSOR, 0}}},
                                       check_index_select};

/* The views of self, dim, index and the output, of rank 1 at least. */
static fl_status begin_work(fl_stream stream, const fl_call* call, index_work* work, fl_error* err) {
  memset(work, 0, sizeof *work);
  work->dim = (uint32_t)call->args[1].value.i;
  FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work->self, err));
  FL_TRY(ref_view_of(stream, call->args[2].value.tensor, &work->index, err));
  FL_TRY(ref_view_of(stream, call->outs[0], &work->out, err));
  ref_view_at_least_1d(&work->self);
  ref_view_at_least_1d(&work->index);
  ref_view_at_least_1d(&work->out);
  return FL_OK;
}

static fl_status run_index_select(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  index_work work;
  FL_TRY(ref_begin_run(kernel, stream, call, err));
  FL_TRY(begin_work(stream, call, &work, err));
  return ref_submit(stream, execute_index_select, &work, sizeof work, err);
}

/* ---- gather: one element of self for each index ---------------------------------------------- */

/* 1 when `small` fits into `large` in every dimension but `except`. */
static int fits(const fl_tensor* small, const fl_tensor* large, int64_t except) {
  if (small->ndim != large->ndim) {
    return 0;
  }
  for (uint32_t d = 0; d < small->ndim; d++) {
    if ((int64_t)d != except && small->sizes[d] > large->sizes[d]) {
      return 0;
    }
  }
  return 1;
}

static fl_status check_gather(const fl_kernel* kernel, const fl_call* call, fl_error* err) {
  const fl_tensor* self = call->args[0].value.tensor;
  const fl_tensor* index = call->args[2].value.tensor;
  const fl_tensor* out = call->outs[0];
  int64_t dim = call->args[1].value.i;
  if (!dim_exists(self, dim) || !fits(index, self, dim)) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: the index does not fit self around dimension %lld", kernel->op,
                   (long long)dim);
  }
  if (!fits(index, out, -1) || !fits(out, index, -1)) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: the output has not the shape of the index", kernel->op);
  }
  return FL_OK;
}

/* A line of the indexed tensor: `size` elements, `step` bytes apart. */
typedef struct line {
  int64_t size;
  int64_t step;
} line;

/* Operands: output, index, element 0 of the line. */
#define GATHER_LOOP(BITS)                                                                                  \
  static void gather_##BITS(char* const* data, const int64_t* step, int64_t n, const void* context) {      \
    const line* along = context;                                                                           \
    for (int64_t i = 0; i < n; i++) {                                                                      \
      int64_t position = ref_load_i64(data[1] + i * step[1]);                                              \
      ref_bits##BITS element = 0;                                                                          \
      if (position >= 0 && position < along->size) {                                                       \
        element = ref_load_bits##BITS(data[2] + i * step[2] + position * along->step);                     \
      }                                                                                                    \
      ref_store_bits##BITS(data[0] + i * step[0], element);                                                \
    }                                                                                                      \
  }

GATHER_LOOP(8)
GATHER_LOOP(16)
GATHER_LOOP(32)
GATHER_LOOP(64)

static fl_iter_loop gather_loop(uint32_t dtype) {
  switch (fl_dtype_size(dtype)) {
    case 1:
      return gather_8;
    case 2:
      return gather_16;
    case 4:
      return gather_32;
    default:
      return gather_64;
  }
}

/* An operand that stands still along `dim`, where the index moves it. */
static void add_lines(fl_iter* iter, char* data, const int64_t* strides, uint32_t dim, uint32_t bytes) {
  int64_t held[REF_MAX_NDIM];
  memcpy(held, strides, sizeof held);
  held[dim] = 0;
  fl_iter_operand(iter, data, held, bytes);
}

static void execute_gather(const void* payload) {
  const index_work* work = payload;
  uint32_t bytes = fl_dtype_size(work->out.dtype);
  line along = {work->self.sizes[work->dim], work->self.strides[work->dim] * (int64_t)bytes};
  fl_iter iter;
  fl_iter_init(&iter, work->out.ndim, work->out.sizes);
  fl_iter_operand(&iter, work->out.data, work->out.strides, bytes);
  fl_iter_operand(&iter, work->index.data, work->index.strides, sizeof(int64_t));
  add_lines(&iter, work->self.data, work->self.strides, work->dim, bytes);
  fl_iter_sort(&iter);
  fl_iter_coalesce(&iter);
  fl_iter_run(&iter, gather_loop(work->out.dtype), &along);
}

static const ref_op gather_op = {
    {{{REF_TENSOR, 0}, {REF_INT, 0}, {REF_TENSOR, REF_FIXED(FL_DTYPE_I64)}}, {{REF_TENSOR, 0}}}, check_gather};

static fl_status run_gather(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  index_work work;
  FL_TRY(ref_begin_run(kernel, stream, call, err));
  FL_TRY(begin_work(stream, call, &work, err));
  return ref_submit(stream, execute_gather, &work, sizeof work, err);
}

/* ---- embedding: a row of weight for each index ----------------------------------------------- */

static fl_status check_embedding(const fl_kernel* kernel, const fl_call* call, fl_error* err) {
  const fl_tensor* weight = call->args[0].value.tensor;
  const fl_tensor* indices = call->args[1].value.tensor;
  const fl_tensor* out = call->outs[0];
  if (weight->ndim != 2 || out->ndim != indices->ndim + 1 || out->sizes[indices->ndim] != weight->sizes[1]) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: ranks %u, %u and %u, or another width of rows", kernel->op,
                   weight->ndim, indices->ndim, out->ndim);
  }
  for (uint32_t d = 0; d < indices->ndim; d++) {
    if (out->sizes[d] != indices->sizes[d]) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "%s: dimension %u differs from that of the indices", kernel->op, d);
    }
  }
  return FL_OK;
}

typedef struct embedding_work {
  ref_view out;
  ref_view weight;
  ref_view indices;
} embedding_work;

/* Operands: row of the output, index. */
static void embedding_loop(char* const* data, const int64_t* step, int64_t n, const void* context) {
  const embedding_work* work = context;
  static const char zero[sizeof(int64_t)];
  uint32_t last = work->out.ndim - 1;
  ref_view to = {.ndim = 1, .dtype = work->out.dtype, .sizes = {work->out.sizes[last]},
                 .strides = {work->out.strides[last]}};
  ref_view from = {.ndim = 1, .dtype = work->out.dtype, .sizes = {work->out.sizes[last]},
                   .strides = {work->weight.strides[1]}};
  int64_t row_step = work->weight.strides[0] * (int64_t)fl_dtype_size(work->out.dtype);
  for (int64_t i = 0; i < n; i++) {
    int64_t row = load_index(data[1] + i * step[1], work->indices.dtype);
    to.data = data[0] + i * step[0];
    if (row < 0 || row >= work->weight.sizes[0]) {
      ref_move_one(&to, zero);
      continue;
    }
    from.data = work->weight.data + row * row_step;
    ref_move(&to, &from);
  }
}

static void execute_embedding(const void* payload) {
  const embedding_work* work = payload;
  if (work->out.numel == 0) {
    return;
  }
  fl_iter iter;
  fl_iter_init(&iter, work->indices.ndim, work->indices.sizes);
  fl_iter_operand(&iter, work->out.data, work->out.strides, fl_dtype_size(work->out.dtype));
  fl_iter_operand(&iter, work->indices.data, work->indices.strides, fl_dtype_size(work->indices.dtype));
  fl_iter_run(&iter, embedding_loop, work);
}

static const ref_op embedding_op = {{{{REF_TENSOR, 0}, {REF_TENSOR, 1}}, {{REF_TENSOR, 0}}}, check_embedding};

static fl_status run_embedding(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  embedding_work work;
  FL_TRY(ref_begin_run(kernel, stream, call, err));
  FL_TRY(ref_view_of(stream, call->outs[0], &work.out, err));
  FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work.weight, err));
  FL_TRY(ref_view_of(stream, call->args[1].value.tensor, &work.indices, err));
  return ref_submit(stream, execute_embedding, &work, sizeof work, err);
}

/* ---- The table ------------------------------------------------------------------------------- */

#define WITH_BOTH_INDICES(DTYPE) \
  REF_ROW(FL_DTYPE_NONE, DTYPE, FL_DTYPE_I64), REF_ROW(FL_DTYPE_NONE, DTYPE, FL_DTYPE_I32),

static const fl_kernel_row rows_all_by_index[20] = {REF_ALL(WITH_BOTH_INDICES)};
static const fl_kernel_row rows_floats_by_index[8] = {REF_FLOATS(WITH_BOTH_INDICES)};

const fl_kernel ref_kernels_index[] = {
    REF_KERNEL("index_select", 2, rows_all_by_index, FL_TIER_EXACT, 0, &index_select_op, ref_plan_op, run_index_select),
    REF_KERNEL("gather", 1, ref_rows_all, FL_TIER_EXACT, 0, &gather_op, ref_plan_op, run_gather),
    REF_KERNEL("embedding", 2, rows_floats_by_index, FL_TIER_EXACT, 0, &embedding_op, ref_plan_op, run_embedding),
};

const uint32_t ref_kernels_index_count = REF_COUNT(ref_kernels_index);
