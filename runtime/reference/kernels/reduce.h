/*
 * reduce.h - what all reductions share: dimensions, shapes, and the walk that feeds folds.
 *
 * A reduction sees its input as two axes: `kept`, one element per output, and `reduced`, the elements that make
 * one output. Folds never meet strides or storage types: they get values of a lane (axis.h) in small pieces.
 */
#ifndef REF_KERNELS_REDUCE_H
#define REF_KERNELS_REDUCE_H

#include "axis.h"
#include "kernel.h"

/* Outputs that are worked on at once. */
#define REF_BLOCK 64

/* Folds values into accumulators of the same lane. `center` holds one value per accumulator, for sums of squares
 * about it; other folds do not read it. */
typedef struct ref_fold {
  /* All `count` values into the one accumulator. */
  void (*run)(void* acc, const void* center, const void* values, int64_t count);
  /* Value i into accumulator i, i < count. */
  void (*columns)(void* acc, const void* center, const void* values, int64_t count);
} ref_fold;

/* One fold per lane, indexed by ref_lane. Floats: at most count - 1 additions on the
 * longest path. Integers wrap. max and min propagate NaN. any leaves 0 or 1. */
extern const ref_fold ref_fold_sum[3];
extern const ref_fold ref_fold_product[3];
extern const ref_fold ref_fold_max[3];
extern const ref_fold ref_fold_min[3];
extern const ref_fold ref_fold_any[3];
extern const ref_fold ref_fold_squares[3]; /* (value - center)^2 */

typedef struct ref_reduction {
  uint32_t dtype;
  char* data;
  ref_axis kept;
  ref_axis reduced;
} ref_reduction;

/* `mask` has a bit for every reduced dimension of the view. */
ref_reduction ref_reduction_of(const ref_view* view, uint32_t mask);

/* Folds the elements of outputs first ... first + count - 1, count <= REF_BLOCK, into acc[0 ... count - 1]. */
void ref_fold_block(const ref_reduction* reduction, const ref_fold* fold, int64_t first, int64_t count,
                    const void* center, void* acc);

/* Sets `count` values of a lane. */
void ref_fill_values(ref_lane lane, ref_value value, int64_t count, void* values);

/* Dimensions named by an INT or INT_LIST argument as a mask. Out of range or named twice: FL_INVALID_ARGUMENT. A
 * tensor without dimensions may be asked for dimension 0, which reduces nothing. */
fl_status ref_dims_mask(const fl_kernel* kernel, const fl_arg* arg, uint32_t ndim, uint32_t* mask, fl_error* err);

/* `out` has the shape of `in` with the masked dimensions 1, else FL_INVALID_ARGUMENT. */
fl_status ref_check_keepdim(const fl_kernel* kernel, const fl_tensor* in, uint32_t mask, const fl_tensor* out,
                            fl_error* err);

/* `out` has the shape of `in`, else FL_INVALID_ARGUMENT. */
fl_status ref_check_shape(const fl_kernel* kernel, const fl_tensor* in, const fl_tensor* out, fl_error* err);

/* The reductions with a file of their own, listed in ref_kernels_reduction with the others. */
#define REF_LISTED_REDUCTION(name)                                                                              \
  extern const ref_signature ref_##name##_signature;                                                            \
  fl_status ref_##name##_plan(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,     \
                              fl_error* err);                                                                   \
  fl_status ref_##name##_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err)

REF_LISTED_REDUCTION(cumsum);   /* scan.c */
REF_LISTED_REDUCTION(argmax);   /* arg_reduction.c */
REF_LISTED_REDUCTION(variance); /* variance.c */

#endif /* REF_KERNELS_REDUCE_H */
