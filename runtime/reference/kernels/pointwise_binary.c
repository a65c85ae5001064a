/*
 * pointwise_binary.c - arithmetic and bit operations of two tensors, or of a tensor and a number.
 */
#include "elements.h"
#include "pointwise.h"

#define BINARY {{{REF_TENSOR, 0}, {REF_TENSOR, 0}}, {{REF_TENSOR, 0}}}
#define BINARY_OR_NUMBER {{{REF_TENSOR, 0}, {REF_TENSOR_OR_SCALAR, 0}}, {{REF_TENSOR, 0}}}
#define BINARY_WITH_ALPHA {{{REF_TENSOR, 0}, {REF_TENSOR_OR_SCALAR, 0}, {REF_SCALAR, 0}}, {{REF_TENSOR, 0}}}
#define BINARY_WITH_WORD {{{REF_TENSOR, 0}, {REF_TENSOR_OR_SCALAR, 0}, {REF_STRING, 0}}, {{REF_TENSOR, 0}}}

/* ---- add and sub: alpha is k0; alpha 1 needs no product -------------------------------------- */

REF_BINARY_FLOATS(add, a + b, a + b)
REF_BINARY_INTEGERS(add, add_i(a, b))
REF_LOOP_2(add_bool, bool, bool, bool, a | b)
static const fl_iter_loop add_loops[REF_DTYPES] = {REF_ALL_LOOPS(add)};

REF_BINARY_FLOATS(add_scaled, (float)add_scaled_f(a, b, k0.f), add_scaled_d(a, b, k0.f))
REF_BINARY_INTEGERS(add_scaled, add_i(a, mul_i(k0.i, b)))
REF_LOOP_2(add_scaled_bool, bool, bool, bool, a | (k0.i & b))
static const fl_iter_loop add_scaled_loops[REF_DTYPES] = {REF_ALL_LOOPS(add_scaled)};

REF_BINARY_FLOATS(sub, a - b, a - b)
REF_BINARY_INTEGERS(sub, sub_i(a, b))
static const fl_iter_loop sub_loops[REF_DTYPES] = {REF_NUMBER_LOOPS(sub)};

REF_BINARY_FLOATS(sub_scaled, (float)sub_scaled_f(a, b, k0.f), sub_scaled_d(a, b, k0.f))
REF_BINARY_INTEGERS(sub_scaled, sub_i(a, mul_i(k0.i, b)))
static const fl_iter_loop sub_scaled_loops[REF_DTYPES] = {REF_NUMBER_LOOPS(sub_scaled)};

static int alpha_is_one(const fl_call* call) {
  fl_scalar alpha = ref_number(&call->args[2]);
  return alpha.tag == FL_TAG_FLOAT ? alpha.f == 1 : alpha.i == 1;
}

static fl_iter_loop choose_add(const fl_call* call, const ref_types* types) {
  return alpha_is_one(call) ? add_loops[types->dtype[0]] : add_scaled_loops[types->dtype[0]];
}

static fl_iter_loop choose_sub(const fl_call* call, const ref_types* types) {
  return alpha_is_one(call) ? sub_loops[types->dtype[0]] : sub_scaled_loops[types->dtype[0]];
}

static const ref_pointwise_op add_op = {BINARY_WITH_ALPHA, NULL, choose_add};
static const ref_pointwise_op sub_op = {BINARY_WITH_ALPHA, NULL, choose_sub};

/* ---- Products and quotients ------------------------------------------------------------------ */

REF_BINARY_FLOATS(mul, a* b, a* b)
REF_BINARY_INTEGERS(mul, mul_i(a, b))
REF_LOOP_2(mul_bool, bool, bool, bool, a & b)
static const fl_iter_loop mul_loops[REF_DTYPES] = {REF_ALL_LOOPS(mul)};
static const ref_pointwise_op mul_op = {BINARY_OR_NUMBER, mul_loops, NULL};

REF_BINARY_FLOATS(div, a / b, a / b)
static const fl_iter_loop div_loops[REF_DTYPES] = {REF_FLOAT_LOOPS(div)};
static const ref_pointwise_op div_op = {BINARY_OR_NUMBER, div_loops, NULL};

REF_BINARY_FLOATS(div_trunc, (float)div_trunc_d(a, b), div_trunc_d(a, b))
REF_BINARY_INTEGERS(div_trunc, div_trunc_i(a, b))
static const fl_iter_loop div_trunc_loops[REF_DTYPES] = {REF_NUMBER_LOOPS(div_trunc)};

REF_BINARY_FLOATS(div_floor, (float)div_floor_d(a, b), div_floor_d(a, b))
REF_BINARY_INTEGERS(div_floor, div_floor_i(a, b))
static const fl_iter_loop div_floor_loops[REF_DTYPES] = {REF_NUMBER_LOOPS(div_floor)};

static fl_iter_loop choose_div_mode(const fl_call* call, const ref_types* types) {
  if (ref_string_is(&call->args[2], "trunc")) {
    return div_trunc_loops[types->dtype[0]];
  }
  if (ref_string_is(&call->args[2], "floor")) {
    return div_floor_loops[types->dtype[0]];
  }
  return NULL;
}

static const ref_pointwise_op div_mode_op = {BINARY_WITH_WORD, NULL, choose_div_mode};

REF_BINARY_FLOATS(remainder, (float)remainder_d(a, b), remainder_d(a, b))
REF_BINARY_INTEGERS(remainder, remainder_i(a, b))
static const fl_iter_loop remainder_loops[REF_DTYPES] = {REF_NUMBER_LOOPS(remainder)};
static const ref_pointwise_op remainder_op = {BINARY_OR_NUMBER, remainder_loops, NULL};

REF_BINARY_FLOATS(pow, powf(a, b), pow(a, b))
REF_BINARY_INTEGERS(pow, pow_i(a, b))
static const fl_iter_loop pow_loops[REF_DTYPES] = {REF_NUMBER_LOOPS(pow)};
static const ref_pointwise_op pow_op = {BINARY_OR_NUMBER, pow_loops, NULL};

/* ---- Extremes -------------------------------------------------------------------------------- */

REF_BINARY_FLOATS(maximum, max_f(a, b), max_d(a, b))
REF_BINARY_INTEGERS(maximum, max_i(a, b))
REF_LOOP_2(maximum_bool, bool, bool, bool, max_i(a, b))
static const fl_iter_loop maximum_loops[REF_DTYPES] = {REF_ALL_LOOPS(maximum)};
static const ref_pointwise_op maximum_op = {BINARY, maximum_loops, NULL};

REF_BINARY_FLOATS(minimum, min_f(a, b), min_d(a, b))
REF_BINARY_INTEGERS(minimum, min_i(a, b))
REF_LOOP_2(minimum_bool, bool, bool, bool, min_i(a, b))
static const fl_iter_loop minimum_loops[REF_DTYPES] = {REF_ALL_LOOPS(minimum)};
static const ref_pointwise_op minimum_op = {BINARY, minimum_loops, NULL};

/* ---- Bits ------------------------------------------------------------------------------------ */

#define BITS_OP(OP, INTEGER)                                                               \
  REF_BINARY_INTEGERS(OP, INTEGER)                                                         \
  REF_LOOP_2(OP##_bool, bool, bool, bool, INTEGER)                                         \
  static const fl_iter_loop OP##_loops[REF_DTYPES] = {REF_INTEGER_LOOPS(OP),               \
                                                      [FL_DTYPE_BOOL] = OP##_bool};        \
  static const ref_pointwise_op OP##_op = {BINARY_OR_NUMBER, OP##_loops, NULL};

BITS_OP(bitwise_and, a & b)
BITS_OP(bitwise_or, a | b)
BITS_OP(bitwise_xor, a ^ b)

/* ---- The table ------------------------------------------------------------------------------- */

#define SCALAR_TOO (FL_KERNEL_INPLACE_OK | FL_KERNEL_TAKES_SCALAR)

const fl_kernel ref_kernels_pointwise_binary[] = {
    REF_POINTWISE("add.Tensor", ref_rows_all, FL_TIER_ACCURATE, SCALAR_TOO, &add_op),
    REF_POINTWISE("sub.Tensor", ref_rows_numbers, FL_TIER_ACCURATE, SCALAR_TOO, &sub_op),
    REF_POINTWISE("mul.Tensor", ref_rows_all, FL_TIER_ACCURATE, SCALAR_TOO, &mul_op),
    REF_POINTWISE("div.Tensor", ref_rows_floats, FL_TIER_ACCURATE, SCALAR_TOO, &div_op),
    REF_POINTWISE("div.Tensor_mode", ref_rows_numbers, FL_TIER_ACCURATE, SCALAR_TOO, &div_mode_op),
    REF_POINTWISE("remainder.Tensor", ref_rows_numbers, FL_TIER_ACCURATE, SCALAR_TOO, &remainder_op),
    REF_POINTWISE("pow.Tensor_Tensor", ref_rows_numbers, FL_TIER_ACCURATE, SCALAR_TOO, &pow_op),
    REF_POINTWISE("maximum", ref_rows_all, FL_TIER_EXACT, FL_KERNEL_INPLACE_OK, &maximum_op),
    REF_POINTWISE("minimum", ref_rows_all, FL_TIER_EXACT, FL_KERNEL_INPLACE_OK, &minimum_op),
    REF_POINTWISE("bitwise_and.Tensor", ref_rows_integers_and_bool, FL_TIER_EXACT, SCALAR_TOO, &bitwise_and_op),
    REF_POINTWISE("bitwise_or.Tensor", ref_rows_integers_and_bool, FL_TIER_EXACT, SCALAR_TOO, &bitwise_or_op),
    REF_POINTWISE("bitwise_xor.Tensor", ref_rows_integers_and_bool, FL_TIER_EXACT, SCALAR_TOO, &bitwise_xor_op),
};

const uint32_t ref_kernels_pointwise_binary_count = REF_COUNT(ref_kernels_pointwise_binary);
