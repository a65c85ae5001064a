/*
 * move.h - moving elements between views on the worker, unchanged or cast.
 */
#ifndef REF_KERNELS_MOVE_H
#define REF_KERNELS_MOVE_H

#include "pointwise.h"

/* The loop that casts elements of dtype `from` to dtype `to`; of one dtype: moves their bits. Both of REF_ALL. */
fl_iter_loop ref_cast_loop(uint32_t from, uint32_t to);

/* Casts every element of `from` to the one of `to` at the same place; the sizes are those of `to`, strides may be
 * negative. The views are apart or exactly one. */
void ref_move(const ref_view* to, const ref_view* from);

/* Writes the bits of one element everywhere in `to`. */
void ref_move_one(const ref_view* to, const char* element);

/* Views of rank 0 become views of rank 1 and size 1, so that a dimension 0 exists. */
void ref_view_at_least_1d(ref_view* view);

#endif /* REF_KERNELS_MOVE_H */
