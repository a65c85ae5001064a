/*
 * conv_product.h - convolutions as matrix products, without a copy of the unfolded image: what forward and backward
 * kernels share. Views have four dimensions (conv_four_dims).
 */
#ifndef REF_KERNELS_CONV_PRODUCT_H
#define REF_KERNELS_CONV_PRODUCT_H

#include "conv_shape.h"
#include "gemm.h"

typedef struct {
  conv_shape shape;
  ref_view input;
  ref_view weight;
  ref_view bias; /* looked at where has_bias */
  ref_view out;
  char* workspace; /* conv_workspace bytes */
  int has_bias;
} conv_work;

/* Bytes of scratch for a convolution of this shape with outputs that are calculated in `lane`. */
int64_t conv_workspace(const conv_shape* shape, ref_lane lane);

/* The whole convolution. An output without elements is left alone. */
void conv_compute(const conv_work* work);

/* Transposed convolutions of any stride; conv_compute takes them where a plain one would not do. */
int64_t conv_scatter_workspace(const conv_shape* shape, ref_lane lane);
void conv_scatter(const conv_work* work);

/* What a plain convolution's taps see of its input: the `user` of a source that gathers with conv_gather_window. */
typedef struct {
  const conv_shape* shape;
  const ref_view* input;
  int64_t channel; /* first input channel of the group */
} conv_window;

/* Tap `tap` (channel, row, column) at output positions (image, row, column) first ... first + count - 1, zeros where it
 * hangs over the edge. */
void conv_gather_window(const ref_gemm_source* source, int64_t first, int64_t count, int64_t tap, void* values);

/* Element (first, second) of the two leading dimensions. */
char* conv_plane(const ref_view* view, int64_t first, int64_t second);

/* The last `count` dimensions of a view. */
ref_axis conv_last_dims(const ref_view* view, uint32_t count);

#endif /* REF_KERNELS_CONV_PRODUCT_H */
