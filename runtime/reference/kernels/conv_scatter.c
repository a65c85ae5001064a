/*
 * conv_scatter.c - transposed convolutions: product[(co, kh, kw), (ih, iw)] = weight[ci, (co, kh, kw)] x
 * input[ci, (ih, iw)], each finished tile added where its taps fall in an image kept in the lane's precision, which is
 * rounded to the output at the end.
 */
#include <string.h>

#include "conv_product.h"

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
    const int64_t place = (group * work->shape.out_channels + channel) * work->bias.strides[0];
    const char* bias = work->bias.data + place * (int64_t)fl_dtype_size(work->bias.dtype);
    ref_load_run(work->bias.dtype, bias, 0, positions, to->image + channel * channel_bytes);
  }
}

static void store_canvas(const conv_work* work, const canvas* from, int64_t image, int64_t group) {
  const ref_axis positions = conv_last_dims(&work->out, 2);
  const int64_t channel_bytes = positions.count * ref_lane_bytes(from->lane);
  for (int64_t channel = 0; channel < work->shape.out_channels; channel++) {
    char* plane = conv_plane(&work->out, image, group * work->shape.out_channels + channel);
    ref_store(work->out.dtype, plane, &positions, 0, positions.count, from->image + channel * channel_bytes);
  }
}

static int64_t canvas_bytes(const conv_shape* shape, ref_lane lane) {
  const int64_t bytes = shape->out_channels * shape->out[0] * shape->out[1] * ref_lane_bytes(lane);
  return (bytes + 63) / 64 * 64;
}

void conv_scatter(const conv_work* work) {
  const conv_shape* shape = &work->shape;
  const canvas to = {shape, ref_lane_of(work->out.dtype), work->workspace};
  const ref_gemm_sink sink = {scatter_tile, &to};
  ref_gemm_source weight = {.dtype = work->weight.dtype};
  ref_gemm_source image = {.dtype = work->input.dtype};
  weight.lines = conv_last_dims(&work->weight, 3);
  ref_axis_begin(&weight.depths);
  ref_axis_add(&weight.depths, shape->in_channels, work->weight.strides[0]);
  image.lines = conv_last_dims(&work->input, 2);
  ref_axis_begin(&image.depths);
  ref_axis_add(&image.depths, shape->in_channels, work->input.strides[1]);
  for (int64_t n = 0; n < shape->batch; n++) {
    for (int64_t group = 0; group < shape->groups; group++) {
      weight.data = conv_plane(&work->weight, group * shape->in_channels, 0);
      image.data = conv_plane(&work->input, n, group * shape->in_channels);
      prime_canvas(work, &to, group);
      ref_gemm(&weight, &image, &sink, work->workspace + canvas_bytes(shape, to.lane));
      store_canvas(work, &to, n, group);
    }
  }
}

int64_t conv_scatter_workspace(const conv_shape* shape, ref_lane lane) {
  const int64_t lines = shape->out_channels * shape->taps[0] * shape->taps[1];
  return canvas_bytes(shape, lane) + ref_gemm_workspace(lane, lines, shape->in[0] * shape->in[1], shape->in_channels);
}
