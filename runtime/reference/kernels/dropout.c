/*
 * dropout.c - native_dropout: a mask of Philox's bits and the input's elements under it.
 *
 * Element i in row-major order is kept where u >= p, u = k / 2^24 from the high 24 bits of word i mod 4 of group i / 4:
 * the numbers that uniform gives for f32. The mask thus depends on seed, offset, place and p, not on the dtype.
 */
#include <math.h>

#include "pointwise.h"
#include "random.h"
#include "reduce.h"

#define GROUP 4 /* elements of a counter */
#define CHUNK 256

/* Writes n elements: data and strides (bytes) of out, mask and input. */
typedef void (*drop_fn)(char* const* data, const int64_t* step, int64_t n, const uint8_t* kept, double scale);

typedef struct dropout_work {
  ref_view out;
  ref_view mask;
  ref_view input;
  drop_fn drop;
  fl_rng rng;
  uint32_t least; /* an element is kept where its k is as large */
  double scale;
} dropout_work;

/* A dropped element is a product with 0, so that NaN stays NaN. */
#define DROP(NAME, FACTOR)                                                                               \
  REF_INLINE void drop_##NAME##_walk(char* to, int64_t to_step, const char* from, int64_t from_step,     \
                                     int64_t n, const uint8_t* kept, double scale) {                     \
    REF_INDEPENDENT                                                                                      \
    for (int64_t i = 0; i < n; i++) {                                                                    \
      ref_store_##NAME(to + i * to_step, ref_load_##NAME(from + i * from_step) * (kept[i] * (FACTOR))); \
    }                                                                                                    \
  }                                                                                                      \
  static void drop_##NAME(char* const* data, const int64_t* step, int64_t n, const uint8_t* kept,        \
                          double scale) {                                                                \
    if (step[0] == ref_bytes_##NAME && step[2] == ref_bytes_##NAME) {                                    \
      drop_##NAME##_walk(data[0], ref_bytes_##NAME, data[2], ref_bytes_##NAME, n, kept, scale);          \
    } else {                                                                                             \
      drop_##NAME##_walk(data[0], step[0], data[2], step[2], n, kept, scale);                            \
    }                                                                                                    \
    for (int64_t i = 0; i < n; i++) {                                                                    \
      data[1][i * step[1]] = (char)kept[i];                                                              \
    }                                                                                                    \
  }

DROP(f16, (float)scale)
DROP(bf16, (float)scale)
DROP(f32, (float)scale)
DROP(f64, scale)

static const drop_fn drops[REF_DTYPES] = {
    [FL_DTYPE_F16] = drop_f16, [FL_DTYPE_BF16] = drop_bf16, [FL_DTYPE_F32] = drop_f32, [FL_DTYPE_F64] = drop_f64};

/* ---- Elements in row-major order ------------------------------------------------------------- */

/* Which of `count` elements from element `first` on are kept. */
static void draw_kept(const dropout_work* work, int64_t first, int64_t count, uint8_t* kept) {
  int64_t done = 0;
  while (done < count) {
    int64_t index = first + done;
    ref_words x = ref_philox(work->rng, (uint64_t)(index / GROUP));
    for (int64_t place = index % GROUP; place < GROUP && done < count; place++) {
      kept[done] = x.w[place] >> 8 >= work->least;
      done += 1;
    }
  }
}

typedef struct progress {
  const dropout_work* work;
  int64_t* index; /* of the next element */
} progress;

static void dropout_loop(char* const* data, const int64_t* step, int64_t n, const void* context) {
  const progress* now = context;
  uint8_t kept[CHUNK];
  for (int64_t done = 0; done < n; done += CHUNK) {
    int64_t some = n - done < CHUNK ? n - done : CHUNK;
    char* at[3] = {data[0] + done * step[0], data[1] + done * step[1], data[2] + done * step[2]};
    draw_kept(now->work, *now->index, some, kept);
    now->work->drop(at, step, some, kept, now->work->scale);
    *now->index += some;
  }
}

static void execute_dropout(const void* payload) {
  const dropout_work* work = payload;
  const ref_view* views[3] = {&work->out, &work->mask, &work->input};
  int64_t index = 0;
  progress now = {work, &index};
  fl_iter iter;
  fl_iter_init(&iter, work->out.ndim, work->out.sizes);
  for (int n = 0; n < 3; n++) {
    fl_iter_operand(&iter, views[n]->data, views[n]->strides, fl_dtype_size(views[n]->dtype));
  }
  fl_iter_coalesce(&iter);
  fl_iter_run(&iter, dropout_loop, &now);
}

/* ---- The kernel ------------------------------------------------------------------------------ */

static fl_status check_dropout(const fl_kernel* kernel, const fl_call* call, fl_error* err) {
  FL_TRY(ref_check_shapes(kernel, call, err));
  FL_TRY(ref_check_shape(kernel, call->outs[0], call->outs[1], err));
  double p = call->args[1].value.f;
  if (!(p >= 0 && p <= 1)) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: p is %g, not a probability", kernel->op, p);
  }
  return FL_OK;
}

static const ref_op dropout_op = {
    {{{REF_TENSOR, 0}, {REF_FLOAT, 0}, {REF_RNG, 0}}, {{REF_TENSOR, 0}, {REF_TENSOR, REF_FIXED(FL_DTYPE_BOOL)}}},
    check_dropout,
};

static fl_status plan_dropout(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                              fl_error* err) {
  FL_TRY(ref_plan_op(kernel, device, call, out, err));
  int64_t numel = call->outs[0]->numel;
  fl_plan_set(out, 0, 0, (uint64_t)(numel / GROUP + (numel % GROUP != 0)));
  return FL_OK;
}

static fl_status run_dropout(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  FL_TRY(ref_begin_run(kernel, stream, call, err));
  dropout_work work;
  memset(&work, 0, sizeof work);
  FL_TRY(ref_view_of(stream, call->outs[0], &work.out, err));
  FL_TRY(ref_view_of(stream, call->outs[1], &work.mask, err));
  FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work.input, err));
  double p = call->args[1].value.f;
  work.drop = drops[work.out.dtype];
  work.rng = call->args[2].value.rng;
  work.least = (uint32_t)ceil(p * 0x1p24);
  work.scale = p < 1 ? 1 / (1 - p) : 0;
  return ref_submit(stream, execute_dropout, &work, sizeof work, err);
}

#define EXACT_ROW(DTYPE) {sizeof(fl_kernel_row), FL_KIND_KERNEL_ROW, {DTYPE}, FL_DTYPE_NONE, 0, 0, FL_ROW_PHILOX_EXACT},
static const fl_kernel_row rows_exact_bits[4] = {REF_FLOATS(EXACT_ROW)};

const fl_kernel ref_kernels_dropout[] = {
    REF_KERNEL("native_dropout", 1, rows_exact_bits, FL_TIER_ACCURATE, 0, &dropout_op, plan_dropout, run_dropout),
};

const uint32_t ref_kernels_dropout_count = REF_COUNT(ref_kernels_dropout);
