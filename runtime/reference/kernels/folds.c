/* folds.c - sums, products, extremes and squares for each lane. */
#include "reduce.h"

#define FOLD_LANES 8

#define IS_NAN(x) ((x) != (x))

#define ACC float
#define SUM float
#define NAME(x) x##_f32
#include "folds.inc"
#undef ACC
#undef SUM
#undef NAME

#define ACC double
#define SUM double
#define NAME(x) x##_f64
#include "folds.inc"
#undef ACC
#undef SUM
#undef NAME

#undef IS_NAN
#define IS_NAN(x) 0
#define ACC int64_t
#define SUM uint64_t
#define NAME(x) x##_i64
#include "folds.inc"

#define FOLDS(op)                            \
  const ref_fold ref_fold_##op[3] = {        \
      [REF_LANE_F32] = {op##_run_f32, op##_columns_f32}, \
      [REF_LANE_F64] = {op##_run_f64, op##_columns_f64}, \
      [REF_LANE_I64] = {op##_run_i64, op##_columns_i64}, \
  }

FOLDS(sum);
FOLDS(product);
FOLDS(max);
FOLDS(min);
FOLDS(any);
FOLDS(squares);
