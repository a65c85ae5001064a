/*
 * copy_cast.c - _to_copy between all pairs of dtypes, and the moving of elements that other kernels build on.
 *
 * Every cast rounds once. Floating to integer truncates and wraps; out of the range of int64, NaN included, there is
 * no right value: the least int64 is wrapped.
 */
#include "move.h"

/* ---- Casts of one element -------------------------------------------------------------------- */

static inline int64_t integer_of(double a) {
  if (a >= -0x1p63 && a < 0x1p63) {
    return (int64_t)a;
  }
  return INT64_MIN;
}

/* Exact up to 2^53, above rounded to odd multiples of 2^11: a later rounding to 16 bits is then the only one that
 * counts. */
static inline double odd_double_of(int64_t a) {
  uint64_t magnitude = a < 0 ? 0 - (uint64_t)a : (uint64_t)a;
  uint64_t cut = magnitude & 0x7FFu;
  if (magnitude > (uint64_t)1 << 53) {
    magnitude = (magnitude - cut) | (cut != 0 ? 0x800u : 0u);
  }
  double rounded = (double)magnitude;
  return a < 0 ? -rounded : rounded;
}

/* ---- Loops: a row of the table for each source ----------------------------------------------- */

#define CASTS_TO_INTEGERS(S, EXPRESSION)      \
  REF_LOOP_1(S##_to_u8, u8, S, EXPRESSION)    \
  REF_LOOP_1(S##_to_i8, i8, S, EXPRESSION)    \
  REF_LOOP_1(S##_to_i16, i16, S, EXPRESSION)  \
  REF_LOOP_1(S##_to_i32, i32, S, EXPRESSION)  \
  REF_LOOP_1(S##_to_i64, i64, S, EXPRESSION)

#define CASTS_FROM_INTEGER(S)                                            \
  CASTS_TO_INTEGERS(S, a)                                                \
  REF_LOOP_1(S##_to_bool, bool, S, a)                                    \
  REF_LOOP_1(S##_to_f16, half_bits, S, fl_f64_to_f16(odd_double_of(a)))  \
  REF_LOOP_1(S##_to_bf16, half_bits, S, fl_f64_to_bf16(odd_double_of(a))) \
  REF_LOOP_1(S##_to_f32, f32, S, (float)a)                               \
  REF_LOOP_1(S##_to_f64, f64, S, (double)a)

#define CASTS_FROM_FLOAT(S)                  \
  CASTS_TO_INTEGERS(S, integer_of((double)a)) \
  REF_LOOP_1(S##_to_bool, bool, S, a != 0)   \
  REF_LOOP_1(S##_to_f16, f16, S, a)          \
  REF_LOOP_1(S##_to_bf16, bf16, S, a)        \
  REF_LOOP_1(S##_to_f32, f32, S, a)          \
  REF_LOOP_1(S##_to_f64, f64, S, (double)a)

CASTS_FROM_INTEGER(bool)
CASTS_FROM_INTEGER(u8)
CASTS_FROM_INTEGER(i8)
CASTS_FROM_INTEGER(i16)
CASTS_FROM_INTEGER(i32)
CASTS_FROM_INTEGER(i64)
CASTS_FROM_FLOAT(f16)
CASTS_FROM_FLOAT(bf16)
CASTS_FROM_FLOAT(f32)
CASTS_TO_INTEGERS(f64, integer_of(a))
REF_LOOP_1(f64_to_bool, bool, f64, a != 0)
REF_LOOP_1(f64_to_f16, half_bits, f64, fl_f64_to_f16(a))
REF_LOOP_1(f64_to_bf16, half_bits, f64, fl_f64_to_bf16(a))
REF_LOOP_1(f64_to_f32, f32, f64, (float)a)
REF_LOOP_1(f64_to_f64, f64, f64, a)

#define CASTS(S)                                                                                           \
  {[FL_DTYPE_BOOL] = S##_to_bool, [FL_DTYPE_U8] = S##_to_u8,   [FL_DTYPE_I8] = S##_to_i8,                   \
   [FL_DTYPE_I16] = S##_to_i16,   [FL_DTYPE_I32] = S##_to_i32, [FL_DTYPE_I64] = S##_to_i64,                 \
   [FL_DTYPE_F16] = S##_to_f16,   [FL_DTYPE_BF16] = S##_to_bf16, [FL_DTYPE_F32] = S##_to_f32,               \
   [FL_DTYPE_F64] = S##_to_f64}

static const fl_iter_loop cast_loops[REF_DTYPES][REF_DTYPES] = {
    [FL_DTYPE_BOOL] = CASTS(bool), [FL_DTYPE_U8] = CASTS(u8),   [FL_DTYPE_I8] = CASTS(i8),
    [FL_DTYPE_I16] = CASTS(i16),   [FL_DTYPE_I32] = CASTS(i32), [FL_DTYPE_I64] = CASTS(i64),
    [FL_DTYPE_F16] = CASTS(f16),   [FL_DTYPE_BF16] = CASTS(bf16), [FL_DTYPE_F32] = CASTS(f32),
    [FL_DTYPE_F64] = CASTS(f64),
};

/* ---- Moves: bits of one size ----------------------------------------------------------------- */

REF_LOOP_1(move_8, bits8, bits8, a)
REF_LOOP_1(move_16, bits16, bits16, a)
REF_LOOP_1(move_32, bits32, bits32, a)
REF_LOOP_1(move_64, bits64, bits64, a)

fl_iter_loop ref_cast_loop(uint32_t from, uint32_t to) {
  if (from != to) {
    return cast_loops[from][to];
  }
  switch (fl_dtype_size(to)) {
    case 1:
      return move_8;
    case 2:
      return move_16;
    case 4:
      return move_32;
    default:
      return move_64;
  }
}

static void run_move(const ref_view* to, char* from, const int64_t* from_strides, uint32_t from_dtype) {
  static const fl_scalar no_numbers[2];
  fl_iter iter;
  fl_iter_init(&iter, to->ndim, to->sizes);
  fl_iter_operand(&iter, to->data, to->strides, fl_dtype_size(to->dtype));
  fl_iter_operand(&iter, from, from_strides, fl_dtype_size(from_dtype));
  fl_iter_sort(&iter);
  fl_iter_coalesce(&iter);
  fl_iter_run(&iter, ref_cast_loop(from_dtype, to->dtype), no_numbers);
}

void ref_move(const ref_view* to, const ref_view* from) {
  run_move(to, from->data, from->strides, from->dtype);
}

void ref_move_one(const ref_view* to, const char* element) {
  static const int64_t no_strides[REF_MAX_NDIM];
  char copy[sizeof(int64_t)];
  memcpy(copy, element, fl_dtype_size(to->dtype));
  run_move(to, copy, no_strides, to->dtype);
}

void ref_view_at_least_1d(ref_view* view) {
  if (view->ndim == 0) {
    view->ndim = 1;
    view->sizes[0] = 1;
    view->strides[0] = 1;
  }
}

/* ---- _to_copy -------------------------------------------------------------------------------- */

static fl_iter_loop choose_cast(const fl_call* call, const ref_types* types) {
  (void)call;
  return ref_cast_loop(types->dtype[0], types->dtype[1]);
}

static const ref_pointwise_op to_copy_op = {{{{REF_TENSOR, 0}}, {{REF_TENSOR, 1}}}, NULL, choose_cast};

#define PAIR(S, D) REF_ROW(FL_DTYPE_NONE, S, D),
#define PAIRS_FROM(S)                                                                               \
  PAIR(S, FL_DTYPE_F32) PAIR(S, FL_DTYPE_F64) PAIR(S, FL_DTYPE_F16) PAIR(S, FL_DTYPE_BF16)          \
  PAIR(S, FL_DTYPE_I64) PAIR(S, FL_DTYPE_I32) PAIR(S, FL_DTYPE_I16) PAIR(S, FL_DTYPE_I8)            \
  PAIR(S, FL_DTYPE_U8) PAIR(S, FL_DTYPE_BOOL)

static const fl_kernel_row rows_all_by_all[100] = {REF_ALL(PAIRS_FROM)};

const fl_kernel ref_kernels_copy_cast[] = {
    REF_KERNEL("_to_copy", 2, rows_all_by_all, FL_TIER_EXACT, 0, &to_copy_op, ref_pointwise_plan, ref_pointwise_run),
};

const uint32_t ref_kernels_copy_cast_count = REF_COUNT(ref_kernels_copy_cast);
