/*
 * max_pool.c - the largest element of each window and its place in the plane.
 *
 * A line of outputs takes two passes: first the lines of the input that the window holds are joined column by column,
 * then the columns of each window. Every step is a loop along a line without a division, whatever the window is.
 */
#include <math.h>

#include "pointwise.h"
#include "pool_shape.h"
#include "reduce.h"

/* The loops of one lane; see max_pool.inc. */
typedef struct {
  void (*begin_columns)(const void* line, int64_t place, int64_t count, void* best, void* places);
  void (*join_columns)(const void* line, int64_t place, int64_t count, void* best, void* places);
  void (*begin_outputs)(const void* columns, const void* column_places, int64_t column, int64_t step, int64_t first,
                        int64_t count, void* best, void* places);
  void (*join_outputs)(const void* columns, const void* column_places, int64_t column, int64_t step, int64_t first,
                       int64_t count, void* best, void* places);
  void (*leave_outputs)(int64_t count, void* best, void* places);
  void (*store_places)(const void* places, int64_t count, int64_t step, int64_t* to);
} max_steps;

#define VALUE float
#define POSITION int32_t
#define NAME(x) x##_f32
#include "max_pool.inc"
#undef VALUE
#undef POSITION
#undef NAME

#define VALUE double
#define POSITION int64_t
#define NAME(x) x##_f64
#include "max_pool.inc"
#undef VALUE
#undef POSITION
#undef NAME

typedef struct {
  conv_shape shape;
  ref_view input;
  ref_view out;
  ref_view indices;
  char* workspace;
} max_work;

/* Where the window's column `tap` falls into the line: outputs low ... high - 1, output 0 at column `origin`. */
typedef struct {
  int64_t origin;
  int64_t low;
  int64_t high;
} tap_range;

/* Pieces of the workspace. Values and places of a lane are equally wide. */
typedef struct {
  tap_range* ranges;
  char* line;          /* a line of the input as values of the lane, where it does not lie so */
  char* columns;       /* the best value of each column */
  char* column_places; /* where in the plane it lies */
  char* best;          /* the same for each output of a line */
  char* best_places;
  int64_t bytes;
} max_scratch;

static max_scratch scratch_of(const conv_shape* shape, uint32_t dtype, char* workspace) {
  const int64_t value_bytes = ref_lane_bytes(ref_lane_of(dtype));
  const int64_t in_bytes = pool_aligned(shape->in[1] * value_bytes);
  const int64_t out_bytes = pool_aligned(shape->out[1] * value_bytes);
  const int64_t range_bytes = pool_aligned(shape->taps[1] * (int64_t)sizeof(tap_range));
  max_scratch scratch;
  scratch.ranges = (tap_range*)workspace;
  scratch.bytes = range_bytes + 3 * in_bytes + 2 * out_bytes;
  if (workspace != NULL) {
    scratch.line = workspace + range_bytes;
    scratch.columns = scratch.line + in_bytes;
    scratch.column_places = scratch.columns + in_bytes;
    scratch.best = scratch.column_places + in_bytes;
    scratch.best_places = scratch.best + out_bytes;
  }
  return scratch;
}

/* Joins the lines that the window of output line `out_line` holds; 0 where it holds none. */
static int join_lines(const max_work* work, const max_steps* steps, const max_scratch* scratch, const char* plane,
                      int64_t out_line) {
  const conv_shape* shape = &work->shape;
  const int64_t line_bytes = work->input.strides[2] * (int64_t)fl_dtype_size(work->input.dtype);
  const int ready = pool_lines_are_values(&work->input);
  int found = 0;
  int64_t line = out_line * shape->stride[0] - shape->padding[0];
  for (int64_t tap = 0; tap < shape->taps[0] && line < shape->in[0]; tap++, line += shape->dilation[0]) {
    if (line < 0) {
      continue;
    }
    const char* values = plane + line * line_bytes;
    if (!ready) {
      ref_load_run(work->input.dtype, values, work->input.strides[3], shape->in[1], scratch->line);
      values = scratch->line;
    }
    const int64_t place = line * shape->in[1];
    if (found) {
      steps->join_columns(values, place, shape->in[1], scratch->columns, scratch->column_places);
    } else {
      steps->begin_columns(values, place, shape->in[1], scratch->columns, scratch->column_places);
    }
    found = 1;
  }
  return found;
}

/* Joins the columns that each window of a line holds. The further left a column of the window, the fewer outputs at the
 * left edge have it: an output begins with the first that it has. */
static void join_taps(const conv_shape* shape, const max_steps* steps, const max_scratch* scratch, void* best) {
  const int64_t step = shape->stride[1];
  int64_t begun = shape->out[1]; /* outputs from here on have a value */
  if (scratch->ranges[0].low > 0) {
    steps->leave_outputs(scratch->ranges[0].low, best, scratch->best_places);
  }
  for (int64_t tap = 0; tap < shape->taps[1]; tap++) {
    const tap_range range = scratch->ranges[tap];
    const int64_t fresh = begun < range.high ? begun : range.high;
    if (range.low < fresh) {
      steps->begin_outputs(scratch->columns, scratch->column_places, range.low * step + range.origin, step, range.low,
                           fresh - range.low, best, scratch->best_places);
    }
    if (begun < range.high) {
      steps->join_outputs(scratch->columns, scratch->column_places, begun * step + range.origin, step, begun,
                          range.high - begun, best, scratch->best_places);
    }
    begun = range.low < begun ? range.low : begun;
  }
}

static void pool_plane(const max_work* work, const max_steps* steps, const max_scratch* scratch, const char* plane,
                       char* out, char* indices) {
  const conv_shape* shape = &work->shape;
  const int64_t out_bytes = work->out.strides[2] * (int64_t)fl_dtype_size(work->out.dtype);
  const int64_t indices_bytes = work->indices.strides[2] * (int64_t)sizeof(int64_t);
  const int in_place = pool_lines_are_values(&work->out);
  for (int64_t line = 0; line < shape->out[0]; line++) {
    char* to = out + line * out_bytes;
    char* best = in_place ? to : scratch->best;
    if (join_lines(work, steps, scratch, plane, line)) {
      join_taps(shape, steps, scratch, best);
    } else {
      steps->leave_outputs(shape->out[1], best, scratch->best_places);
    }
    if (!in_place) {
      ref_store_run(work->out.dtype, to, work->out.strides[3], shape->out[1], best);
    }
    steps->store_places(scratch->best_places, shape->out[1], work->indices.strides[3],
                        (int64_t*)(indices + line * indices_bytes));
  }
}

static void max_execute(const void* payload) {
  const max_work* work = payload;
  const conv_shape* shape = &work->shape;
  const max_steps* steps = ref_lane_of(work->input.dtype) == REF_LANE_F32 ? &steps_f32 : &steps_f64;
  const max_scratch scratch = scratch_of(shape, work->input.dtype, work->workspace);
  const ref_axis input = pool_planes(&work->input);
  const ref_axis out = pool_planes(&work->out);
  const ref_axis indices = pool_planes(&work->indices);
  for (int64_t tap = 0; tap < shape->taps[1]; tap++) {
    tap_range* range = &scratch.ranges[tap];
    range->origin = conv_range(shape, 1, tap, shape->in[1], shape->out[1], &range->low, &range->high);
  }
  for (int64_t plane = 0; plane < input.count; plane++) {
    pool_plane(work, steps, &scratch, ref_element(work->input.dtype, work->input.data, &input, plane),
               ref_element(work->out.dtype, work->out.data, &out, plane),
               ref_element(FL_DTYPE_I64, work->indices.data, &indices, plane));
  }
}

static fl_status max_check(const fl_kernel* kernel, const fl_call* call, conv_shape* shape, fl_error* err) {
  ref_types types;
  FL_TRY(ref_check(kernel, call, &types, err));
  FL_TRY(pool_shape_of(kernel, call, 1, 1, call->args[0].value.tensor, call->outs[0], shape, err));
  return ref_check_shape(kernel, call->outs[0], call->outs[1], err);
}

static fl_status max_plan(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out, fl_error* err) {
  conv_shape shape;
  FL_TRY(ref_check_plan(device, out, err));
  FL_TRY(max_check(kernel, call, &shape, err));
  fl_plan_set(out, (uint64_t)scratch_of(&shape, call->outs[0]->dtype, NULL).bytes, 64, 0);
  return FL_OK;
}

static fl_status max_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  max_work work;
  FL_TRY(max_check(kernel, call, &work.shape, err));
  FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work.input, err));
  FL_TRY(ref_view_of(stream, call->outs[0], &work.out, err));
  FL_TRY(ref_view_of(stream, call->outs[1], &work.indices, err));
  const uint64_t bytes = (uint64_t)scratch_of(&work.shape, work.out.dtype, NULL).bytes;
  FL_TRY(ref_workspace(stream, call, bytes, &work.workspace, err));
  if (work.out.numel == 0) {
    return FL_OK;
  }
  pool_four_dims(&work.input);
  pool_four_dims(&work.out);
  pool_four_dims(&work.indices);
  return ref_submit(stream, max_execute, &work, sizeof work, err);
}

static const ref_signature signature = {
    .args = {{REF_TENSOR, 0}, {REF_INT_LIST, 0}, {REF_INT_LIST, 0}, {REF_INT_LIST, 0}, {REF_INT_LIST, 0}},
    .outs = {{REF_TENSOR, 0}, {REF_TENSOR, REF_FIXED(FL_DTYPE_I64)}},
};

const fl_kernel ref_kernels_max_pool[] = {
    REF_KERNEL("max_pool2d_with_indices", 1, ref_rows_floats, FL_TIER_EXACT, 0, &signature, max_plan, max_run),
};
const uint32_t ref_kernels_max_pool_count = REF_COUNT(ref_kernels_max_pool);
