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

/* The shape that a call of aten::convolution, already through ref_check, asks for. Sizes that do not fit each other:
 * FL_INVALID_ARGUMENT; other than one or two spatial dimensions, or numbers of 2^31 and more: FL_UNIMPLEMENTED. */
fl_status conv_shape_of(const fl_kernel* kernel, const fl_call* call, conv_shape* shape, fl_error* err);

/* A view of three dimensions made four: [a, b, s] becomes [a, b, 1, s]. */
void conv_four_dims(ref_view* view);

/* For tap `tap` of spatial dimension `dim`: the wide position of narrow position 0, and the range [*low, *high) of the
 * `narrow` narrow positions whose wide position lies in [0, wide). */
int64_t conv_range(const conv_shape* shape, int dim, int64_t tap, int64_t wide, int64_t narrow, int64_t* low,
                   int64_t* high);

#endif /* REF_KERNELS_CONV_SHAPE_H */
