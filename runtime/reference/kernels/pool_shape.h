/*
 * pool_shape.h - the geometry of pooling: which elements of a plane each output sees.
 *
 * Pooling moves a window over planes of height and width as a convolution does, so it shares conv_shape: dimension 0 is
 * the height, 1 the width, `in` the pooled plane, `out` the plane of results, `taps` the size of the window. Batch,
 * groups and channels stay unused: every plane of the leading dimensions is pooled by itself.
 */
#ifndef REF_KERNELS_POOL_SHAPE_H
#define REF_KERNELS_POOL_SHAPE_H

#include "conv_shape.h"

/* `wide` [N, C, H, W] or [C, H, W] and `narrow` of the same leading sizes: their planes become `in` and `out`.
 * FL_INVALID_ARGUMENT where they do not fit each other; planes of 2^31 elements and more: FL_UNIMPLEMENTED. */
fl_status pool_planes_of(const fl_kernel* kernel, const fl_tensor* wide, const fl_tensor* narrow, conv_shape* shape,
                         fl_error* err);

/* As pool_planes_of, with the window of the call: kernel_size, stride and padding in the slots from `slot` on, and
 * dilation behind them where the operator is `dilated`. `out` is what ATen gives with ceil_mode or without. */
fl_status pool_shape_of(const fl_kernel* kernel, const fl_call* call, uint32_t slot, int dilated, const fl_tensor* wide,
                        const fl_tensor* narrow, conv_shape* shape, fl_error* err);

/* A view of three dimensions made four: [c, h, w] becomes [1, c, h, w]. */
void pool_four_dims(ref_view* view);

/* The planes of a view of four dimensions, row-major: ref_element gives the address of one. */
ref_axis pool_planes(const ref_view* view);

/* Bytes rounded up to where the next piece of a workspace may begin. */
int64_t pool_aligned(int64_t bytes);

/* 1 where lines of a view of four dimensions lie in memory as values of their lane do: they need not be copied. */
int pool_lines_are_values(const ref_view* view);

#endif /* REF_KERNELS_POOL_SHAPE_H */
