/*
 * pool_sums.h - planes that the gradients of pooling are summed in.
 *
 * Values of the lane lie row-major without a gap: in the gradient itself where it lies so, else in the workspace, from
 * where each finished plane is rounded into the gradient once.
 */
#ifndef REF_KERNELS_POOL_SUMS_H
#define REF_KERNELS_POOL_SUMS_H

#include "pool_shape.h"

typedef struct {
  const ref_view* gradient; /* of four dimensions */
  ref_axis planes;
  ref_axis positions;
  char* workspace; /* NULL: the sums are formed in the gradient */
} pool_sums;

/* Bytes of workspace, a multiple of 64, that the planes of a gradient take. */
int64_t pool_sums_bytes(const fl_tensor* gradient);

/* `workspace` is that of pool_sums_bytes. */
pool_sums pool_sums_of(const ref_view* gradient, char* workspace);

/* Zeroed sums for plane `index`. */
char* pool_sums_begin(const pool_sums* sums, int64_t index);

/* The sums of plane `index` are complete. */
void pool_sums_end(const pool_sums* sums, int64_t index);

#endif /* REF_KERNELS_POOL_SUMS_H */
