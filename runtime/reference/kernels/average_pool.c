/*
 * average_pool.c - averages of windows that a stride moves or that divide the plane evenly, and their gradients.
 *
 * Both ways a window is taken apart into lines and columns. Forward: its lines are summed column by column, then its
 * columns. Backward: each gradient's share is added to its columns of one line, and that line to all of the window's.
 */
#include <string.h>

#include "pointwise.h"
#include "pool_sums.h"
#include "reduce.h"

/* A window along one dimension: places begin ... end - 1 inside of the plane, and how many count in the divisor. */
typedef struct {
  int64_t begin;
  int64_t end;
  int64_t counted;
} pool_window;

/* The loops of one lane; see average_pool.inc. */
typedef struct {
  void (*add_line)(const void* values, int64_t count, void* sums);
  void (*average_columns)(const void* sums, const pool_window* windows, int64_t count, int64_t lines, int64_t given,
                          void* averages);
  void (*share_columns)(const void* gradients, const pool_window* windows, int64_t count, int64_t lines, int64_t given,
                        void* sums);
} average_steps;

#define VALUE float
#define NAME(x) x##_f32
#include "average_pool.inc"
#undef VALUE
#undef NAME

#define VALUE double
#define NAME(x) x##_f64
#include "average_pool.inc"
#undef VALUE
#undef NAME

typedef struct {
  ref_signature signature;
  uint8_t is_adaptive; /* the sizes alone say which windows there are */
  uint8_t is_backward;
} average_op;

/* What a call says beside its tensors. */
typedef struct {
  conv_shape shape;
  int is_adaptive;
  int counts_padding;
  int64_t divisor; /* 0: the window's own */
} average_shape;

typedef struct {
  average_shape call;
  ref_view in;  /* forward: self; backward: grad_output */
  ref_view out; /* forward: out; backward: grad_input */
  char* workspace;
} average_work;

/* ---- Windows ---------------------------------------------------------------------------------------- */

static pool_window window_of(const average_shape* call, int dim, int64_t output) {
  const conv_shape* shape = &call->shape;
  const int64_t size = shape->in[dim];
  pool_window window;
  if (call->is_adaptive) {
    const int64_t count = shape->out[dim];
    window.begin = output * size / count;
    window.end = ((output + 1) * size + count - 1) / count;
    window.counted = window.end - window.begin;
    return window;
  }
  const int64_t start = output * shape->stride[dim] - shape->padding[dim];
  const int64_t end = start + shape->taps[dim];
  const int64_t padded = size + shape->padding[dim]; /* what ceil_mode adds behind it never counts */
  window.begin = start > 0 ? start : 0;
  window.end = end < size ? end : size;
  window.counted = call->counts_padding ? (end < padded ? end : padded) - start : window.end - window.begin;
  return window;
}

/* Pieces of the workspace. */
typedef struct {
  pool_window* windows[2];
  char* line; /* a line of `in` as values of the lane, where it does not lie so */
  char* wide; /* a line of the pooled plane */
  char* narrow; /* a line of averages */
  char* sums; /* as pool_sums wants them */
  int64_t bytes;
} average_scratch;

static average_scratch scratch_of(const conv_shape* shape, uint32_t dtype, char* workspace) {
  const int64_t value_bytes = ref_lane_bytes(ref_lane_of(dtype));
  const int64_t wide_bytes = pool_aligned(shape->in[1] * value_bytes);
  const int64_t narrow_bytes = pool_aligned(shape->out[1] * value_bytes);
  const int64_t line_bytes = wide_bytes > narrow_bytes ? wide_bytes : narrow_bytes;
  const int64_t window_bytes[2] = {pool_aligned(shape->out[0] * (int64_t)sizeof(pool_window)),
                                   pool_aligned(shape->out[1] * (int64_t)sizeof(pool_window))};
  average_scratch scratch;
  memset(&scratch, 0, sizeof scratch);
  scratch.bytes = window_bytes[0] + window_bytes[1] + line_bytes + wide_bytes + narrow_bytes;
  if (workspace != NULL) {
    scratch.windows[0] = (pool_window*)workspace;
    scratch.windows[1] = (pool_window*)(workspace + window_bytes[0]);
    scratch.line = workspace + window_bytes[0] + window_bytes[1];
    scratch.wide = scratch.line + line_bytes;
    scratch.narrow = scratch.wide + wide_bytes;
    scratch.sums = scratch.narrow + narrow_bytes;
  }
  return scratch;
}

static average_scratch begin_scratch(const average_work* work) {
  const conv_shape* shape = &work->call.shape;
  const average_scratch scratch = scratch_of(shape, work->in.dtype, work->workspace);
  for (int dim = 0; dim < 2; dim++) {
    for (int64_t output = 0; output < shape->out[dim]; output++) {
      scratch.windows[dim][output] = window_of(&work->call, dim, output);
    }
  }
  return scratch;
}

static const average_steps* steps_of(const average_work* work) {
  return ref_lane_of(work->in.dtype) == REF_LANE_F32 ? &steps_f32 : &steps_f64;
}

/* Line `index` of a plane of `in`, of `count` values, in `held` where it has to be loaded. */
static const char* read_line(const average_work* work, const char* plane, int64_t index, int64_t count, char* held) {
  const char* line = plane + index * work->in.strides[2] * (int64_t)fl_dtype_size(work->in.dtype);
  if (pool_lines_are_values(&work->in)) {
    return line;
  }
  ref_load_run(work->in.dtype, line, work->in.strides[3], count, held);
  return held;
}

/* ---- Forward ---------------------------------------------------------------------------------------- */

static void average_plane(const average_work* work, const average_scratch* scratch, const char* in, char* out) {
  const conv_shape* shape = &work->call.shape;
  const average_steps* steps = steps_of(work);
  const int64_t wide_bytes = shape->in[1] * ref_lane_bytes(ref_lane_of(work->in.dtype));
  const int64_t out_bytes = work->out.strides[2] * (int64_t)fl_dtype_size(work->out.dtype);
  const int in_place = pool_lines_are_values(&work->out);
  for (int64_t output = 0; output < shape->out[0]; output++) {
    const pool_window* lines = &scratch->windows[0][output];
    char* to = out + output * out_bytes;
    char* averages = in_place ? to : scratch->narrow;
    memset(scratch->wide, 0, (size_t)wide_bytes);
    for (int64_t line = lines->begin; line < lines->end; line++) {
      steps->add_line(read_line(work, in, line, shape->in[1], scratch->line), shape->in[1], scratch->wide);
    }
    steps->average_columns(scratch->wide, scratch->windows[1], shape->out[1], lines->counted, work->call.divisor,
                           averages);
    if (!in_place) {
      ref_store_run(work->out.dtype, to, work->out.strides[3], shape->out[1], averages);
    }
  }
}

static void average_execute(const void* payload) {
  const average_work* work = payload;
  const average_scratch scratch = begin_scratch(work);
  const ref_axis in = pool_planes(&work->in);
  const ref_axis out = pool_planes(&work->out);
  for (int64_t plane = 0; plane < in.count; plane++) {
    average_plane(work, &scratch, ref_element(work->in.dtype, work->in.data, &in, plane),
                  ref_element(work->out.dtype, work->out.data, &out, plane));
  }
}

/* ---- Backward --------------------------------------------------------------------------------------- */

static void share_plane(const average_work* work, const average_scratch* scratch, const char* in, char* sums) {
  const conv_shape* shape = &work->call.shape;
  const average_steps* steps = steps_of(work);
  const int64_t wide_bytes = shape->in[1] * ref_lane_bytes(ref_lane_of(work->in.dtype));
  for (int64_t output = 0; output < shape->out[0]; output++) {
    const pool_window* lines = &scratch->windows[0][output];
    const char* gradients = read_line(work, in, output, shape->out[1], scratch->line);
    memset(scratch->wide, 0, (size_t)wide_bytes);
    steps->share_columns(gradients, scratch->windows[1], shape->out[1], lines->counted, work->call.divisor,
                         scratch->wide);
    for (int64_t line = lines->begin; line < lines->end; line++) {
      steps->add_line(scratch->wide, shape->in[1], sums + line * wide_bytes);
    }
  }
}

static void share_execute(const void* payload) {
  const average_work* work = payload;
  const average_scratch scratch = begin_scratch(work);
  const ref_axis in = pool_planes(&work->in);
  const pool_sums sums = pool_sums_of(&work->out, scratch.sums);
  for (int64_t plane = 0; plane < in.count; plane++) {
    share_plane(work, &scratch, ref_element(work->in.dtype, work->in.data, &in, plane), pool_sums_begin(&sums, plane));
    pool_sums_end(&sums, plane);
  }
}

/* ---- The entry -------------------------------------------------------------------------------------- */

static fl_status average_check(const fl_kernel* kernel, const fl_call* call, average_shape* shape, fl_error* err) {
  const average_op* op = kernel->user;
  ref_types types;
  FL_TRY(ref_check(kernel, call, &types, err));
  memset(shape, 0, sizeof *shape);
  const fl_tensor* wide = call->args[op->is_backward].value.tensor;
  const fl_tensor* narrow = op->is_backward ? call->args[0].value.tensor : call->outs[0];
  shape->is_adaptive = op->is_adaptive;
  if (op->is_backward) {
    FL_TRY(ref_check_shape(kernel, wide, call->outs[0], err));
  }
  if (op->is_adaptive) {
    return pool_planes_of(kernel, wide, narrow, &shape->shape, err);
  }
  const fl_arg* arguments = &call->args[1 + op->is_backward]; /* kernel_size, stride, padding and two more */
  shape->counts_padding = arguments[3].value.i != 0;
  if (arguments[4].tag == FL_TAG_INT) {
    shape->divisor = arguments[4].value.i;
    if (shape->divisor == 0) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "%s: a divisor of 0", kernel->op);
    }
  }
  return pool_shape_of(kernel, call, 1u + op->is_backward, 0, wide, narrow, &shape->shape, err);
}

static uint64_t workspace_bytes(const fl_kernel* kernel, const fl_call* call, const average_shape* shape) {
  const average_op* op = kernel->user;
  const int64_t sums = op->is_backward ? pool_sums_bytes(call->outs[0]) : 0;
  return (uint64_t)(scratch_of(&shape->shape, call->outs[0]->dtype, NULL).bytes + sums);
}

static fl_status average_plan(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                              fl_error* err) {
  average_shape shape;
  FL_TRY(ref_check_plan(device, out, err));
  FL_TRY(average_check(kernel, call, &shape, err));
  fl_plan_set(out, workspace_bytes(kernel, call, &shape), 64, 0);
  return FL_OK;
}

static fl_status average_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  const average_op* op = kernel->user;
  average_work work;
  FL_TRY(average_check(kernel, call, &work.call, err));
  FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work.in, err));
  FL_TRY(ref_view_of(stream, call->outs[0], &work.out, err));
  FL_TRY(ref_workspace(stream, call, workspace_bytes(kernel, call, &work.call), &work.workspace, err));
  if (work.out.numel == 0) {
    return FL_OK;
  }
  pool_four_dims(&work.in);
  pool_four_dims(&work.out);
  return ref_submit(stream, op->is_backward ? share_execute : average_execute, &work, sizeof work, err);
}

#define WINDOW_SLOTS {REF_INT_LIST, 0}, {REF_INT_LIST, 0}, {REF_INT_LIST, 0}, {REF_BOOL, 0}, {REF_INT_OR_NONE, 0}
#define OUTS .outs = {{REF_TENSOR, 0}}

static const average_op op_average = {{.args = {{REF_TENSOR, 0}, WINDOW_SLOTS}, OUTS}, 0, 0};
static const average_op op_average_backward = {{.args = {{REF_TENSOR, 0}, {REF_TENSOR, 0}, WINDOW_SLOTS}, OUTS}, 0, 1};
static const average_op op_adaptive = {{.args = {{REF_TENSOR, 0}}, OUTS}, 1, 0};
static const average_op op_adaptive_backward = {{.args = {{REF_TENSOR, 0}, {REF_TENSOR, 0}}, OUTS}, 1, 1};

#define AVERAGE(OP, USER) REF_KERNEL(OP, 1, ref_rows_sums, FL_TIER_ACCURATE, 0, USER, average_plan, average_run)

const fl_kernel ref_kernels_average_pool[] = {
    AVERAGE("avg_pool2d", &op_average),
    AVERAGE("avg_pool2d_backward", &op_average_backward),
    AVERAGE("_adaptive_avg_pool2d", &op_adaptive),
    AVERAGE("_adaptive_avg_pool2d_backward", &op_adaptive_backward),
};
const uint32_t ref_kernels_average_pool_count = REF_COUNT(ref_kernels_average_pool);
