/*
 * conv_shape.h - the geometry of a convolution of one or two spatial dimensions.
 *
 * One dimension is treated as two, the first of them of size 1 everywhere. "Wide" is the side with the filter's
 * window: a plain convolution reads position wide = narrow * stride - padding + tap * dilation of its input for
 * position `narrow` of its output; a transposed one writes that position of its output from its input.
 */
#ifndef REF_KERNELS_CONV_SHAPE_H
#define REF_KERNELS_CONV_SHAPE_H

#include "axis.h"
#include "kernel.h"

typedef struct {
  int64_t batch;
  int64_t groups;
  int64_t in_channels;  /* per group */
  int64_t out_channels; /* per group */
  int64_t in[2];
  int64_t out[2];
  int64_t taps[2];
  int64_t stride[2];
  int64_t padding[2];
  int64_t dilation[2];
  int transposed;
} conv_shape;

/* The tensors whose sizes make a convolution; backward, `out` is the gradient of the output. */
typedef struct {
  const fl_tensor* input;
  const fl_tensor* weight;
  const fl_tensor* out;
} conv_tensors;

/* The shape that a call, already through ref_check, asks for; slots 3 to 8 are stride, padding, dilation, transposed,
 * output_padding and groups. Sizes that do not fit each other: FL_INVALID_ARGUMENT; other than one or two spatial
 * dimensions, or numbers of 2^31 and more: FL_UNIMPLEMENTED. */
fl_status conv_shape_of(const fl_kernel* kernel, const fl_call* call, const conv_tensors* tensors, conv_shape* shape,
                        fl_error* err);

/* FL_INVALID_ARGUMENT unless `tensor` has one value for each output channel. */
fl_status conv_check_bias(const fl_kernel* kernel, const conv_shape* shape, const fl_tensor* tensor, fl_error* err);

/* The convolution from the output's side back to the input's, with the same weight: plain for a transposed one. */
conv_shape conv_reversed(const conv_shape* shape);

/* `count` values of at least `least` from the int list in slot `slot`, as the last ones of `values`; a missing first one
 * is `absent`. Too few, too many or too small: FL_INVALID_ARGUMENT; 2^31 and more: FL_UNIMPLEMENTED. */
fl_status conv_read_list(const fl_kernel* kernel, const fl_call* call, uint32_t slot, uint32_t count, int64_t least,
                         int64_t absent, int64_t values[2], fl_error* err);

/* A view of three dimensions made four: [a, b, s] becomes [a, b, 1, s]. */
void conv_four_dims(ref_view* view);

/* For tap `tap` of spatial dimension `dim`: the wide position of narrow position 0, and the range [*low, *high) of the
 * `narrow` narrow positions whose wide position lies in [0, wide). */
int64_t conv_range(const conv_shape* shape, int dim, int64_t tap, int64_t wide, int64_t narrow, int64_t* low,
                   int64_t* high);

#endif /* REF_KERNELS_CONV_SHAPE_H */
