/*
 * convolution.c - plain and transposed convolution as matrix products, without a copy of the unfolded image.
 *
 * Plain: out[co, (n, oh, ow)] = weight[co, (ci, kh, kw)] x window[(ci, kh, kw), (n, oh, ow)], the window read straight
 * from the input while it is packed, zeros where it hangs over the edge.
 * Transposed: product[(co, kh, kw), (ih, iw)] = weight[ci, (co, kh, kw)] x input[ci, (ih, iw)], each finished tile
 * added where its taps fall in an image kept in the lane's precision, which is rounded to the output at the end.
 */
#include <string.h>

#include "conv_shape.h"
#include "gemm.h"
#include "reduce.h"

typedef struct {
  conv_shape shape;
  ref_view input;
  ref_view weight;
  ref_view bias;
  ref_view out;
  char* workspace;
  int has_bias;
} conv_work;

/* Element (first, second) of the two leading dimensions. */
static char* plane_of(const ref_view* view, int64_t first, int64_t second) {
  const int64_t offset = first * view->strides[0] + second * view->strides[1];
  if (view->numel == 0) {
    return view->data;
  }
  return view->data + offset * (int64_t)fl_dtype_size(view->dtype);
}

static char* bias_of(const conv_work* work, int64_t channel) {
  return work->bias.data + channel * work->bias.strides[0] * (int64_t)fl_dtype_size(work->bias.dtype);
}

/* The last `count` dimensions of a view of four. */
static ref_axis last_dims(const ref_view* view, uint32_t count) {
  ref_axis axis;
  ref_axis_of(view, 0xFu << (4 - count), &axis);
  return axis;
}

/* ---- Plain ------------------------------------------------------------------------------------------ */

typedef struct {
  const conv_work* work;
  int64_t channel; /* first input channel of the group */
} window;

/* What tap column `tap` sees of the input's row `row` at output positions first ... first + count - 1. */
static void gather_row(const conv_work* work, const char* row, int64_t tap, int64_t first, int64_t count,
                       char* values) {
  const ref_view* input = &work->input;
  const int64_t value_bytes = ref_lane_bytes(ref_lane_of(input->dtype));
  const int64_t step = work->shape.stride[1] * input->strides[3];
  int64_t low;
  int64_t high;
  const int64_t origin = conv_range(&work->shape, 1, tap, work->shape.in[1], work->shape.out[1], &low, &high);
  const int64_t from = low > first ? low : first;
  const int64_t to = high < first + count ? high : first + count;
  memset(values, 0, (size_t)(count * value_bytes));
  if (from >= to) {
    return;
  }
  const int64_t column = from * work->shape.stride[1] + origin;
  const char* source = row + column * input->strides[3] * (int64_t)fl_dtype_size(input->dtype);
  ref_load_run(input->dtype, source, step, to - from, values + (from - first) * value_bytes);
}

static void gather_window(const ref_gemm_source* source, int64_t first, int64_t count, int64_t depth, void* values) {
  const window* seen = source->user;
  const conv_work* work = seen->work;
  const conv_shape* shape = &work->shape;
  const int64_t value_bytes = ref_lane_bytes(ref_lane_of(source->dtype));
  const int64_t tap_column = depth % shape->taps[1];
  const int64_t tap_row = depth / shape->taps[1] % shape->taps[0];
  const int64_t channel = seen->channel + depth / shape->taps[1] / shape->taps[0];
  char* to = values;
  while (count > 0) {
    const int64_t column = first % shape->out[1];
    const int64_t row = first / shape->out[1] % shape->out[0];
    const int64_t image = first / shape->out[1] / shape->out[0];
    const int64_t left = shape->out[1] - column;
    const int64_t some = left < count ? left : count;
    const int64_t in_row = row * shape->stride[0] - shape->padding[0] + tap_row * shape->dilation[0];
    if (in_row < 0 || in_row >= shape->in[0]) {
      memset(to, 0, (size_t)(some * value_bytes));
    } else {
      const char* plane = plane_of(&work->input, image, channel);
      const char* line = plane + in_row * work->input.strides[2] * (int64_t)fl_dtype_size(source->dtype);
      gather_row(work, line, tap_column, column, some, to);
    }
    to += some * value_bytes;
    first += some;
    count -= some;
  }
}

static void plain_execute(const conv_work* work) {
  const conv_shape* shape = &work->shape;
  ref_gemm_source weight = {.dtype = work->weight.dtype};
  ref_gemm_source image = {.dtype = work->input.dtype, .gather = gather_window};
  ref_gemm_store store = {.dtype = work->out.dtype};
  window seen = {work, 0};
  image.user = &seen;
  ref_axis_begin(&weight.lines);
  ref_axis_add(&weight.lines, shape->out_channels, work->weight.strides[0]);
  weight.depths = last_dims(&work->weight, 3);
  ref_axis_begin(&image.lines);
  ref_axis_add(&image.lines, shape->batch * shape->out[0] * shape->out[1], 1);
  image.depths = weight.depths;
  ref_axis_begin(&store.rows);
  ref_axis_add(&store.rows, shape->out_channels, work->out.strides[1]);
  ref_axis_of(&work->out, 0xDu, &store.columns);
  store.alpha = ref_gemm_one(store.dtype);
  store.beta = ref_gemm_one(store.dtype);
  if (work->has_bias) {
    ref_axis_begin(&store.addend_rows);
    ref_axis_add(&store.addend_rows, shape->out_channels, work->bias.strides[0]);
    ref_axis_begin(&store.addend_columns);
    ref_axis_add(&store.addend_columns, store.columns.count, 0);
  }
  const ref_gemm_sink sink = ref_gemm_store_sink(&store);
  for (int64_t group = 0; group < shape->groups; group++) {
    weight.data = plane_of(&work->weight, group * shape->out_channels, 0);
    seen.channel = group * shape->in_channels;
    store.out = plane_of(&work->out, 0, group * shape->out_channels);
    store.addend = work->has_bias ? bias_of(work, group * shape->out_channels) : NULL;
    ref_gemm(&weight, &image, &sink, work->workspace);
  }
}

/* ---- Transposed ------------------------------------------------------------------------------------- */

/* Where finished sums of one image and group go: [out_channels][out height][out width] of the lane. */
typedef struct {
  const conv_shape* shape;
  ref_lane lane;
  char* image;
} canvas;

/* Adds `count` sums to values `step` apart. */
static void add_run(ref_lane lane, const char* sums, int64_t count, int64_t step, char* values) {
  for (int64_t i = 0; i < count; i++) {
    if (lane == REF_LANE_F32) {
      ((float*)values)[i * step] += ((const float*)sums)[i];
    } else {
      ((double*)values)[i * step] += ((const double*)sums)[i];
    }
  }
}

/* One line of a tile: tap (tap_row, tap_column) of one output channel, `count` input positions from `first` on. */
static void scatter_line(const canvas* to, const char* sums, int64_t line, int64_t first, int64_t count) {
  const conv_shape* shape = to->shape;
  const int64_t value_bytes = ref_lane_bytes(to->lane);
  const int64_t tap_column = line % shape->taps[1];
  const int64_t tap_row = line / shape->taps[1] % shape->taps[0];
  const int64_t channel = line / shape->taps[1] / shape->taps[0];
  int64_t low;
  int64_t high;
  const int64_t origin = conv_range(shape, 1, tap_column, shape->out[1], shape->in[1], &low, &high);
  while (count > 0) {
    const int64_t column = first % shape->in[1];
    const int64_t row = first / shape->in[1];
    const int64_t left = shape->in[1] - column;
    const int64_t some = left < count ? left : count;
    const int64_t from = low > column ? low : column;
    const int64_t until = high < column + some ? high : column + some;
    const int64_t out_row = row * shape->stride[0] - shape->padding[0] + tap_row * shape->dilation[0];
    if (out_row >= 0 && out_row < shape->out[0] && from < until) {
      const int64_t out_column = from * shape->stride[1] + origin;
      const int64_t position = (channel * shape->out[0] + out_row) * shape->out[1] + out_column;
      add_run(to->lane, sums + (from - column) * value_bytes, until - from, shape->stride[1],
              to->image + position * value_bytes);
    }
    sums += some * value_bytes;
    first += some;
    count -= some;
  }
}

static void scatter_tile(const ref_gemm_sink* sink, const void* tile, int64_t ld, int64_t row, int64_t rows,
                         int64_t column, int64_t columns) {
  const canvas* to = sink->user;
  for (int64_t i = 0; i < rows; i++) {
    const char* sums = (const char*)tile + i * ld * ref_lane_bytes(to->lane);
    scatter_line(to, sums, row + i, column, columns);
  }
}

/* Sets the canvas to the bias of its channels, or to zero. */
static void prime_canvas(const conv_work* work, const canvas* to, int64_t group) {
  const int64_t positions = work->shape.out[0] * work->shape.out[1];
  const int64_t channel_bytes = positions * ref_lane_bytes(to->lane);
  memset(to->image, 0, (size_t)(work->shape.out_channels * channel_bytes));
  if (!work->has_bias) {
    return;
  }
  for (int64_t channel = 0; channel < work->shape.out_channels; channel++) {
    const char* bias = bias_of(work, group * work->shape.out_channels + channel);
    ref_load_run(work->bias.dtype, bias, 0, positions, to->image + channel * channel_bytes);
  }
}

static void store_canvas(const conv_work* work, const canvas* from, int64_t image, int64_t group) {
  const ref_axis positions = last_dims(&work->out, 2);
  const int64_t channel_bytes = positions.count * ref_lane_bytes(from->lane);
  for (int64_t channel = 0; channel < work->shape.out_channels; channel++) {
    char* plane = plane_of(&work->out, image, group * work->shape.out_channels + channel);
    ref_store(work->out.dtype, plane, &positions, 0, positions.count, from->image + channel * channel_bytes);
  }
}

static int64_t canvas_bytes(const conv_shape* shape, ref_lane lane) {
  const int64_t bytes = shape->out_channels * shape->out[0] * shape->out[1] * ref_lane_bytes(lane);
  return (bytes + 63) / 64 * 64;
}

static void transposed_execute(const conv_work* work) {
  const conv_shape* shape = &work->shape;
  const canvas to = {shape, ref_lane_of(work->out.dtype), work->workspace};
  const ref_gemm_sink sink = {scatter_tile, &to};
  ref_gemm_source weight = {.dtype = work->weight.dtype};
  ref_gemm_source image = {.dtype = work->input.dtype};
  weight.lines = last_dims(&work->weight, 3);
  ref_axis_begin(&weight.depths);
  ref_axis_add(&weight.depths, shape->in_channels, work->weight.strides[0]);
  image.lines = last_dims(&work->input, 2);
  ref_axis_begin(&image.depths);
  ref_axis_add(&image.depths, shape->in_channels, work->input.strides[1]);
  for (int64_t n = 0; n < shape->batch; n++) {
    for (int64_t group = 0; group < shape->groups; group++) {
      weight.data = plane_of(&work->weight, group * shape->in_channels, 0);
      image.data = plane_of(&work->input, n, group * shape->in_channels);
      prime_canvas(work, &to, group);
      ref_gemm(&weight, &image, &sink, work->workspace + canvas_bytes(shape, to.lane));
      store_canvas(work, &to, n, group);
    }
  }
}

/* ---- The entry -------------------------------------------------------------------------------------- */

static void conv_execute(const void* payload) {
  const conv_work* work = payload;
  if (work->shape.transposed) {
    transposed_execute(work);
  } else {
    plain_execute(work);
  }
}

static uint64_t conv_workspace(const conv_shape* shape, const fl_tensor* out) {
  const ref_lane lane = ref_lane_of(out->dtype);
  const int64_t taps = shape->taps[0] * shape->taps[1];
  const int64_t narrow_in = shape->in[0] * shape->in[1];
  const int64_t narrow_out = shape->batch * shape->out[0] * shape->out[1];
  if (out->numel == 0) {
    return 0;
  }
  if (shape->transposed) {
    const int64_t product = ref_gemm_workspace(lane, shape->out_channels * taps, narrow_in, shape->in_channels);
    return (uint64_t)(canvas_bytes(shape, lane) + product);
  }
  return (uint64_t)ref_gemm_workspace(lane, shape->out_channels, narrow_out, shape->in_channels * taps);
}

static fl_status conv_plan(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                           fl_error* err) {
  ref_types types;
  conv_shape shape;
  FL_TRY(ref_check_plan(device, out, err));
  FL_TRY(ref_check(kernel, call, &types, err));
  FL_TRY(conv_shape_of(kernel, call, &shape, err));
  fl_plan_set(out, conv_workspace(&shape, call->outs[0]), 64, 0);
  return FL_OK;
}

static fl_status conv_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  ref_types types;
  conv_work work;
  FL_TRY(ref_check(kernel, call, &types, err));
  FL_TRY(conv_shape_of(kernel, call, &work.shape, err));
  FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work.input, err));
  FL_TRY(ref_view_of(stream, call->args[1].value.tensor, &work.weight, err));
  FL_TRY(ref_view_of(stream, call->outs[0], &work.out, err));
  work.has_bias = call->args[2].tag == FL_TAG_TENSOR;
  work.bias = work.out;
  if (work.has_bias) {
    FL_TRY(ref_view_of(stream, call->args[2].value.tensor, &work.bias, err));
  }
  const uint64_t workspace = conv_workspace(&work.shape, call->outs[0]);
  FL_TRY(ref_workspace(stream, call, workspace, &work.workspace, err));
  if (work.out.numel == 0) {
    return FL_OK;
  }
  conv_four_dims(&work.input);
  conv_four_dims(&work.weight);
  conv_four_dims(&work.out);
  return ref_submit(stream, conv_execute, &work, sizeof work, err);
}

static const ref_signature signature = {
    .args = {{REF_TENSOR, 0},
             {REF_TENSOR, 0},
             {REF_TENSOR_OR_NONE, 0},
             {REF_INT_LIST, 0},
             {REF_INT_LIST, 0},
             {REF_INT_LIST, 0},
             {REF_BOOL, 0},
             {REF_INT_LIST, 0},
             {REF_INT, 0}},
    .outs = {{REF_TENSOR, 0}},
};

static const fl_kernel_row rows[] = {
    REF_ROW(FL_DTYPE_F32, FL_DTYPE_F32),
    REF_ROW(FL_DTYPE_F64, FL_DTYPE_F64),
    REF_ROW(FL_DTYPE_F32, FL_DTYPE_F16),
    REF_ROW(FL_DTYPE_F32, FL_DTYPE_BF16),
};

const fl_kernel ref_kernels_convolution[] = {
    REF_KERNEL("convolution", 1, rows, FL_TIER_ACCURATE, 0, &signature, conv_plan, conv_run),
};
const uint32_t ref_kernels_convolution_count = REF_COUNT(ref_kernels_convolution);
