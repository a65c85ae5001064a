/*
 * batch_norm.h - what native_batch_norm and native_batch_norm_backward share: channels in blocks, and the numbers that
 * each of them has.
 *
 * Channels are dimension 1. A block holds the numbers of up to REF_BLOCK channels as values of the lane, which is that
 * of input and statistics alike. A tensor that is absent, or an output that nobody wants, has a view of no elements.
 */
#ifndef REF_KERNELS_BATCH_NORM_H
#define REF_KERNELS_BATCH_NORM_H

#include "reduce.h"

#define REF_CHANNEL_DIM 1
#define REF_CHANNEL_MASK (~(1u << REF_CHANNEL_DIM)) /* the dimensions that a channel's elements lie in */

typedef double ref_channels[REF_BLOCK];

/* The steps of one lane. Pointers are to values of it. */
typedef struct {
  /* values[i] /= divisor. */
  void (*divide)(void* values, int64_t count, double divisor);
  /* variances[i] becomes 1 / sqrt(variances[i] + eps). */
  void (*invert)(void* variances, int64_t count, double eps);
  /* fresh[i] becomes (1 - momentum) * running[i] + momentum * fresh[i]. */
  void (*update)(void* fresh, const void* running, int64_t count, double momentum);
  /* to[i] = a[i] * b[i]. */
  void (*multiply)(void* to, const void* a, const void* b, int64_t count);
  /* x[i] becomes (x[i] - mean) * scale + shift; the steps of the numbers from one element to the next are `step`. */
  void (*apply)(void* x, const void* mean, const void* scale, const void* shift, int64_t step, int64_t count);
  /* x[i] becomes grad[i] * (x[i] - mean). */
  void (*cross)(void* x, const void* grad, const void* mean, int64_t step, int64_t count);
  /* grad[i] becomes (grad[i] - share - (x[i] - mean) * slope) * scale, or where x is NULL grad[i] * scale. */
  void (*give_back)(void* grad, const void* x, const void* mean, const void* share, const void* slope,
                    const void* scale, int64_t step, int64_t count);
} ref_norm_steps;

extern const ref_norm_steps ref_norm_steps_of[2]; /* by REF_LANE_F32, REF_LANE_F64 */

/* Channels first ... of a [C] tensor; `absent` where the view has no elements. */
void ref_load_channels(const ref_view* view, int64_t first, int64_t count, double absent, void* values);

/* Does nothing where the view has no elements. */
void ref_store_channels(const ref_view* view, int64_t first, int64_t count, const void* values);

/* 1 where the channels of a block lie closer together than the elements of one of them. */
int ref_channels_are_close(const ref_reduction* in, int64_t count);

/* A [C] tensor for the channels of `input`, or an absent one: argument `slot` of the call. */
fl_status ref_check_channels(const fl_kernel* kernel, const fl_tensor* input, const fl_call* call, uint32_t slot,
                             fl_error* err);

/* Output `place` is [C], or [0] where nobody wants it. */
fl_status ref_check_channel_out(const fl_kernel* kernel, const fl_tensor* input, const fl_call* call, uint32_t place,
                                fl_error* err);

/* The view of an optional argument: without elements where it is absent. */
fl_status ref_view_of_optional(fl_stream stream, const fl_arg* arg, ref_view* view, fl_error* err);

#endif /* REF_KERNELS_BATCH_NORM_H */
