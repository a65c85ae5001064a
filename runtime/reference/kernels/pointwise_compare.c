/*
 * pointwise_compare.c - what answers with bool, and where, which asks one.
 */
#include "elements.h"
#include "pointwise.h"

#define TO_BOOL {{REF_TENSOR, REF_FIXED(FL_DTYPE_BOOL)}}

/* Loops that compare two elements of one dtype: the expression is the same for every compute type. */
#define COMPARE_LOOPS(OP, EXPRESSION)               \
  REF_LOOP_2(OP##_bool, bool, bool, bool, EXPRESSION) \
  REF_LOOP_2(OP##_u8, bool, u8, u8, EXPRESSION)     \
  REF_LOOP_2(OP##_i8, bool, i8, i8, EXPRESSION)     \
  REF_LOOP_2(OP##_i16, bool, i16, i16, EXPRESSION)  \
  REF_LOOP_2(OP##_i32, bool, i32, i32, EXPRESSION)  \
  REF_LOOP_2(OP##_i64, bool, i64, i64, EXPRESSION)  \
  REF_LOOP_2(OP##_f16, bool, f16, f16, EXPRESSION)  \
  REF_LOOP_2(OP##_bf16, bool, bf16, bf16, EXPRESSION) \
  REF_LOOP_2(OP##_f32, bool, f32, f32, EXPRESSION)  \
  REF_LOOP_2(OP##_f64, bool, f64, f64, EXPRESSION)  \
  static const fl_iter_loop OP##_loops[REF_DTYPES] = {REF_ALL_LOOPS(OP)};

#define COMPARE_OP(OP, EXPRESSION) \
  COMPARE_LOOPS(OP, EXPRESSION)    \
  static const ref_pointwise_op OP##_op = {{{{REF_TENSOR, 0}, {REF_TENSOR_OR_SCALAR, 0}}, TO_BOOL}, OP##_loops, NULL};

COMPARE_OP(eq, a == b)
COMPARE_OP(ne, a != b)
COMPARE_OP(lt, a < b)
COMPARE_OP(le, a <= b)
COMPARE_OP(gt, a > b)
COMPARE_OP(ge, a >= b)

#define LOGICAL_OP(OP, EXPRESSION) \
  COMPARE_LOOPS(OP, EXPRESSION)    \
  static const ref_pointwise_op OP##_op = {{{{REF_TENSOR, 0}, {REF_TENSOR, 0}}, TO_BOOL}, OP##_loops, NULL};

/* NaN counts as true. */
LOGICAL_OP(logical_and, (a != 0) & (b != 0))
LOGICAL_OP(logical_or, (a != 0) | (b != 0))

/* ---- Questions about one element ------------------------------------------------------------- */

#define QUESTION_OP(OP, EXPRESSION)                                      \
  REF_LOOP_1(OP##_bool, bool, bool, EXPRESSION)                          \
  REF_LOOP_1(OP##_u8, bool, u8, EXPRESSION)                              \
  REF_LOOP_1(OP##_i8, bool, i8, EXPRESSION)                              \
  REF_LOOP_1(OP##_i16, bool, i16, EXPRESSION)                            \
  REF_LOOP_1(OP##_i32, bool, i32, EXPRESSION)                            \
  REF_LOOP_1(OP##_i64, bool, i64, EXPRESSION)                            \
  REF_LOOP_1(OP##_f16, bool, f16, EXPRESSION)                            \
  REF_LOOP_1(OP##_bf16, bool, bf16, EXPRESSION)                          \
  REF_LOOP_1(OP##_f32, bool, f32, EXPRESSION)                            \
  REF_LOOP_1(OP##_f64, bool, f64, EXPRESSION)                            \
  static const fl_iter_loop OP##_loops[REF_DTYPES] = {REF_ALL_LOOPS(OP)}; \
  static const ref_pointwise_op OP##_op = {{{{REF_TENSOR, 0}}, TO_BOOL}, OP##_loops, NULL};

QUESTION_OP(logical_not, a == 0)
QUESTION_OP(isnan, a != a) /* no integer differs from itself */

/* ---- where: moves bits, so one loop for each element size ------------------------------------ */

REF_LOOP_3(where_8, bits8, bool, bits8, bits8, a ? b : c)
REF_LOOP_3(where_16, bits16, bool, bits16, bits16, a ? b : c)
REF_LOOP_3(where_32, bits32, bool, bits32, bits32, a ? b : c)
REF_LOOP_3(where_64, bits64, bool, bits64, bits64, a ? b : c)

static const fl_iter_loop where_loops[REF_DTYPES] = {
    [FL_DTYPE_BOOL] = where_8, [FL_DTYPE_U8] = where_8,   [FL_DTYPE_I8] = where_8,   [FL_DTYPE_I16] = where_16,
    [FL_DTYPE_F16] = where_16, [FL_DTYPE_BF16] = where_16, [FL_DTYPE_I32] = where_32, [FL_DTYPE_F32] = where_32,
    [FL_DTYPE_I64] = where_64, [FL_DTYPE_F64] = where_64,
};

static const ref_pointwise_op where_op = {
    {{{REF_TENSOR, REF_FIXED(FL_DTYPE_BOOL)}, {REF_TENSOR, 0}, {REF_TENSOR, 0}}, {{REF_TENSOR, 0}}}, where_loops, NULL};

/* ---- The table ------------------------------------------------------------------------------- */

#define EXACT(OP, FLAGS, USER) REF_POINTWISE(OP, ref_rows_all, FL_TIER_EXACT, FLAGS, USER)

const fl_kernel ref_kernels_pointwise_compare[] = {
    EXACT("eq.Tensor", FL_KERNEL_TAKES_SCALAR, &eq_op),
    EXACT("ne.Tensor", FL_KERNEL_TAKES_SCALAR, &ne_op),
    EXACT("lt.Tensor", FL_KERNEL_TAKES_SCALAR, &lt_op),
    EXACT("le.Tensor", FL_KERNEL_TAKES_SCALAR, &le_op),
    EXACT("gt.Tensor", FL_KERNEL_TAKES_SCALAR, &gt_op),
    EXACT("ge.Tensor", FL_KERNEL_TAKES_SCALAR, &ge_op),
    EXACT("logical_and", 0, &logical_and_op),
    EXACT("logical_or", 0, &logical_or_op),
    EXACT("logical_not", 0, &logical_not_op),
    EXACT("isnan", 0, &isnan_op),
    EXACT("where.self", FL_KERNEL_INPLACE_OK, &where_op),
};

const uint32_t ref_kernels_pointwise_compare_count = REF_COUNT(ref_kernels_pointwise_compare);
