/*
 * conv_plain.c - plain convolutions: out[co, (n, oh, ow)] = weight[co, (ci, kh, kw)] x window[(ci, kh, kw), (n, oh, ow)],
 * the window read straight from the input while it is packed. A transposed convolution of stride 1 is one too, with
 * its filter turned by half a turn; that saves it the scatter.
 */
#include <string.h>

#include "conv_product.h"

char* conv_plane(const ref_view* view, int64_t first, int64_t second) {
  const int64_t offset = first * view->strides[0] + second * view->strides[1];
  if (view->numel == 0) {
    return view->data;
  }
  return view->data + offset * (int64_t)fl_dtype_size(view->dtype);
}

ref_axis conv_last_dims(const ref_view* view, uint32_t count) {
  ref_axis axis;
  ref_axis_of(view, 0xFu << (4 - count), &axis);
  return axis;
}

/* ---- The window ------------------------------------------------------------------------------------- */

/* What a tap sees from one output position to the next, the same for all images and rows. */
typedef struct {
  const conv_window* seen;
  int64_t row_origin; /* input row at output row 0 */
  int64_t origin;     /* input column at output column 0 */
  int64_t low;        /* output columns [low, high) lie inside the input's row */
  int64_t high;
  int64_t channel;
  int64_t value_bytes;
} tap_view;

static void clear(const tap_view* tap, char* values, int64_t first, int64_t end) {
  if (first < end) {
    memset(values + first * tap->value_bytes, 0, (size_t)((end - first) * tap->value_bytes));
  }
}

/* Output columns first ... first + count - 1 of the output row `row`. */
static void gather_row(const tap_view* tap, int64_t image, int64_t row, int64_t first, int64_t count, char* values) {
  const ref_view* input = tap->seen->input;
  const conv_shape* shape = tap->seen->shape;
  const int64_t in_row = row * shape->stride[0] + tap->row_origin;
  const int64_t from = tap->low > first ? tap->low : first;
  const int64_t to = tap->high < first + count ? tap->high : first + count;
  if (in_row < 0 || in_row >= shape->in[0] || from >= to) {
    clear(tap, values, 0, count);
    return;
  }
  const int64_t column = from * shape->stride[1] + tap->origin;
  const int64_t place = in_row * input->strides[2] + column * input->strides[3];
  const char* source = conv_plane(input, image, tap->channel) + place * (int64_t)fl_dtype_size(input->dtype);
  clear(tap, values, 0, from - first);
  ref_load_run(input->dtype, source, shape->stride[1] * input->strides[3], to - from,
               values + (from - first) * tap->value_bytes);
  clear(tap, values, to - first, count);
}

/* Whether output positions of an image are the input's, shifted: rows as long, stride 1, no gaps. */
static int is_shifted(const conv_window* seen) {
  const conv_shape* shape = seen->shape;
  const int even = seen->input->strides[2] == shape->in[1] * seen->input->strides[3];
  return even && shape->stride[0] == 1 && shape->stride[1] == 1 && shape->in[1] == shape->out[1];
}

/* Every `step`-th of `count` values to zero. */
static void clear_each(const tap_view* tap, char* values, int64_t count, int64_t step) {
  for (int64_t i = 0; i < count; i += step) {
    if (tap->value_bytes == 4) {
      ((float*)values)[i] = 0;
    } else {
      ((double*)values)[i] = 0;
    }
  }
}

/* Sets output columns first ... end - 1 to zero in every row of positions start ... start + count - 1. */
static void clear_columns(const tap_view* tap, int64_t start, int64_t count, int64_t first, int64_t end, char* values) {
  const int64_t width = tap->seen->shape->out[1];
  for (int64_t column = first; column < end; column++) {
    const int64_t at = (column - start % width + width) % width;
    clear_each(tap, values + at * tap->value_bytes, count - at, width);
  }
}

/* Positions start ... start + count - 1 of one image as one run, then zeros where the run went over a row's edge. */
static void gather_shifted(const tap_view* tap, int64_t image, int64_t start, int64_t count, char* values) {
  const ref_view* input = tap->seen->input;
  const conv_shape* shape = tap->seen->shape;
  const int64_t shift = tap->row_origin * shape->in[1] + tap->origin;
  const int64_t least = -shift > start ? -shift : start;
  const int64_t from = least < start + count ? least : start + count;
  const int64_t most = shape->in[0] * shape->in[1] - shift;
  const int64_t until = most < start + count ? most : start + count;
  const int64_t to = until > from ? until : from;
  const int64_t place = (from + shift) * input->strides[3];
  clear(tap, values, 0, from - start);
  if (from < to) {
    const char* source = conv_plane(input, image, tap->channel) + place * (int64_t)fl_dtype_size(input->dtype);
    ref_load_run(input->dtype, source, input->strides[3], to - from, values + (from - start) * tap->value_bytes);
  }
  clear(tap, values, to - start, count);
  clear_columns(tap, start, count, 0, tap->low, values);
  clear_columns(tap, start, count, tap->high, shape->out[1], values);
}

void conv_gather_window(const ref_gemm_source* source, int64_t first, int64_t count, int64_t tap, void* values) {
  const conv_window* seen = source->user;
  const conv_shape* shape = seen->shape;
  const int64_t positions = shape->out[0] * shape->out[1];
  tap_view view = {.seen = seen, .value_bytes = ref_lane_bytes(ref_lane_of(source->dtype))};
  const int64_t tap_row = tap / shape->taps[1] % shape->taps[0];
  view.origin = conv_range(shape, 1, tap % shape->taps[1], shape->in[1], shape->out[1], &view.low, &view.high);
  view.row_origin = tap_row * shape->dilation[0] - shape->padding[0];
  view.channel = seen->channel + tap / shape->taps[1] / shape->taps[0];
  const int shifted = is_shifted(seen);
  const int64_t unit = shifted ? positions : shape->out[1];
  int64_t image = first / positions;
  int64_t start = first % positions;
  char* to = values;
  while (count > 0) {
    const int64_t left = unit - start % unit;
    const int64_t some = left < count ? left : count;
    if (shifted) {
      gather_shifted(&view, image, start, some, to);
    } else {
      gather_row(&view, image, start / unit, start % unit, some, to);
    }
    to += some * view.value_bytes;
    count -= some;
    start += some;
    if (start == positions) {
      start = 0;
      image++;
    }
  }
}

/* ---- The product ------------------------------------------------------------------------------------ */

/* A weight as a plain convolution reads it: where its first tap is, and elements between neighbours. */
typedef struct {
  char* data;
  int64_t group;
  int64_t out_channel;
  int64_t in_channel;
  int64_t row;
  int64_t column;
} filter;

static filter filter_of(const conv_work* work) {
  const ref_view* weight = &work->weight;
  const int64_t group = work->shape.out_channels * weight->strides[0];
  const filter straight = {weight->data,      group, weight->strides[0], weight->strides[1], weight->strides[2],
                           weight->strides[3]};
  return straight;
}

/* The filter of a transposed convolution, from the last tap to the first. */
static filter turned_filter_of(const conv_work* work) {
  const conv_shape* shape = &work->shape;
  const ref_view* weight = &work->weight;
  const int64_t last = (shape->taps[0] - 1) * weight->strides[2] + (shape->taps[1] - 1) * weight->strides[3];
  const int64_t group = shape->in_channels * weight->strides[0];
  char* data = weight->numel == 0 ? weight->data : weight->data + last * (int64_t)fl_dtype_size(weight->dtype);
  const filter turned = {data, group, weight->strides[1], weight->strides[0], -weight->strides[2], -weight->strides[3]};
  return turned;
}

/* The plain shape of a transposed convolution of stride 1. */
static conv_shape turned_shape_of(const conv_shape* shape) {
  conv_shape turned = *shape;
  turned.transposed = 0;
  for (int dim = 0; dim < 2; dim++) {
    turned.padding[dim] = shape->dilation[dim] * (shape->taps[dim] - 1) - shape->padding[dim];
  }
  return turned;
}

static void correlate(const conv_work* work, const conv_shape* shape, const filter* taps) {
  ref_gemm_source weight = {.dtype = work->weight.dtype};
  ref_gemm_source image = {.dtype = work->input.dtype, .gather = conv_gather_window};
  ref_gemm_store store = {.dtype = work->out.dtype};
  conv_window seen = {shape, &work->input, 0};
  image.user = &seen;
  ref_axis_begin(&weight.lines);
  ref_axis_add(&weight.lines, shape->out_channels, taps->out_channel);
  ref_axis_begin(&weight.depths);
  ref_axis_add(&weight.depths, shape->in_channels, taps->in_channel);
  ref_axis_add(&weight.depths, shape->taps[0], taps->row);
  ref_axis_add(&weight.depths, shape->taps[1], taps->column);
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
    const int64_t channel = group * shape->out_channels;
    seen.channel = group * shape->in_channels;
    weight.data = taps->data + group * taps->group * (int64_t)fl_dtype_size(weight.dtype);
    store.out = conv_plane(&work->out, 0, channel);
    if (work->has_bias) {
      store.addend = work->bias.data + channel * work->bias.strides[0] * (int64_t)fl_dtype_size(store.dtype);
    }
    ref_gemm(&weight, &image, &sink, work->workspace);
  }
}

/* ---- Which way -------------------------------------------------------------------------------------- */

static int scatters(const conv_shape* shape) {
  return shape->transposed && (shape->stride[0] > 1 || shape->stride[1] > 1);
}

int64_t conv_workspace(const conv_shape* shape, ref_lane lane) {
  const int64_t positions = shape->batch * shape->out[0] * shape->out[1];
  if (scatters(shape)) {
    return conv_scatter_workspace(shape, lane);
  }
  return ref_gemm_workspace(lane, shape->out_channels, positions, shape->in_channels * shape->taps[0] * shape->taps[1]);
}

void conv_compute(const conv_work* work) {
  if (work->out.numel == 0) {
    return;
  }
  if (scatters(&work->shape)) {
    conv_scatter(work);
  } else if (work->shape.transposed) {
    const conv_shape shape = turned_shape_of(&work->shape);
    const filter taps = turned_filter_of(work);
    correlate(work, &shape, &taps);
  } else {
    const filter taps = filter_of(work);
    correlate(work, &work->shape, &taps);
  }
}
