/*
 * pointwise_unary.c - functions of one tensor, with their numbers and words: result of the input's dtype.
 */
#include "elements.h"
#include "pointwise.h"

#define UNARY {{{REF_TENSOR, 0}}, {{REF_TENSOR, 0}}}

/* ---- Floating types only --------------------------------------------------------------------- */

#define FLOAT_OP(OP, FLOAT, DOUBLE)                                        \
  REF_UNARY_FLOATS(OP, FLOAT, DOUBLE)                                      \
  static const fl_iter_loop OP##_loops[REF_DTYPES] = {REF_FLOAT_LOOPS(OP)}; \
  static const ref_pointwise_op OP##_op = {UNARY, OP##_loops, NULL};

FLOAT_OP(reciprocal, 1 / a, 1 / a)
FLOAT_OP(exp, expf(a), exp(a))
FLOAT_OP(log, logf(a), log(a))
FLOAT_OP(sqrt, sqrtf(a), sqrt(a))
FLOAT_OP(rsqrt, (float)rsqrt_d(a), rsqrt_d(a))
FLOAT_OP(sin, sinf(a), sin(a))
FLOAT_OP(cos, cosf(a), cos(a))
FLOAT_OP(tanh, tanhf(a), tanh(a))
FLOAT_OP(erf, erff(a), erf(a))
FLOAT_OP(sigmoid, (float)sigmoid_d(a), sigmoid_d(a))
FLOAT_OP(silu, (float)silu_d(a), silu_d(a))

/* ---- Numbers --------------------------------------------------------------------------------- */

#define NUMBER_OP(OP, INTEGER, FLOAT, DOUBLE)                               \
  REF_UNARY_FLOATS(OP, FLOAT, DOUBLE)                                       \
  REF_UNARY_INTEGERS(OP, INTEGER)                                           \
  static const fl_iter_loop OP##_loops[REF_DTYPES] = {REF_NUMBER_LOOPS(OP)}; \
  static const ref_pointwise_op OP##_op = {UNARY, OP##_loops, NULL};

NUMBER_OP(neg, neg_i(a), -a, -a)
NUMBER_OP(abs, abs_i(a), fabsf(a), fabs(a))
NUMBER_OP(relu, max_i(a, 0), relu_f(a), relu_d(a))
NUMBER_OP(floor, a, floorf(a), floor(a))
NUMBER_OP(ceil, a, ceilf(a), ceil(a))
NUMBER_OP(round, a, rintf(a), rint(a))
NUMBER_OP(trunc, a, truncf(a), trunc(a))

/* ---- All, integers and bool ------------------------------------------------------------------ */

REF_UNARY_FLOATS(sign, sign_f(a), sign_d(a))
REF_UNARY_INTEGERS(sign, sign_i(a))
REF_LOOP_1(sign_bool, bool, bool, a)
static const fl_iter_loop sign_loops[REF_DTYPES] = {REF_ALL_LOOPS(sign)};
static const ref_pointwise_op sign_op = {UNARY, sign_loops, NULL};

REF_UNARY_INTEGERS(bitwise_not, ~a)
REF_LOOP_1(bitwise_not_bool, bool, bool, !a)
static const fl_iter_loop bitwise_not_loops[REF_DTYPES] = {REF_INTEGER_LOOPS(bitwise_not),
                                                           [FL_DTYPE_BOOL] = bitwise_not_bool};
static const ref_pointwise_op bitwise_not_op = {UNARY, bitwise_not_loops, NULL};

/* ---- gelu: the word chooses the formula ------------------------------------------------------ */

REF_UNARY_FLOATS(gelu, (float)gelu_d(a), gelu_d(a))
REF_UNARY_FLOATS(gelu_tanh, (float)gelu_tanh_d(a), gelu_tanh_d(a))
static const fl_iter_loop gelu_loops[REF_DTYPES] = {REF_FLOAT_LOOPS(gelu)};
static const fl_iter_loop gelu_tanh_loops[REF_DTYPES] = {REF_FLOAT_LOOPS(gelu_tanh)};

static fl_iter_loop choose_gelu(const fl_call* call, const ref_types* types) {
  if (ref_string_is(&call->args[1], "none")) {
    return gelu_loops[types->dtype[0]];
  }
  if (ref_string_is(&call->args[1], "tanh")) {
    return gelu_tanh_loops[types->dtype[0]];
  }
  return NULL;
}

static const ref_pointwise_op gelu_op = {{{{REF_TENSOR, 0}, {REF_STRING, 0}}, {{REF_TENSOR, 0}}}, NULL, choose_gelu};

/* ---- clamp: k0 and k1 are the bounds, an absent one is the type's own ------------------------ */

static inline int64_t lower_i(fl_scalar bound) {
  return bound.tag == FL_TAG_NONE ? INT64_MIN : bound.tag == FL_TAG_UINT ? INT64_MAX : bound.i;
}

static inline int64_t upper_i(fl_scalar bound) {
  return bound.tag == FL_TAG_NONE || bound.tag == FL_TAG_UINT ? INT64_MAX : bound.i;
}

static inline double lower_d(fl_scalar bound) {
  return bound.tag == FL_TAG_NONE ? -HUGE_VAL : bound.f;
}

static inline double upper_d(fl_scalar bound) {
  return bound.tag == FL_TAG_NONE ? HUGE_VAL : bound.f;
}

/* The bounds as elements of T, rounded once. */
#define CLAMP(ROUND) clamp_d(a, ROUND(lower_d(k0)), ROUND(upper_d(k1)))
#define ROUND_F16(x) fl_f16_to_f64(fl_f64_to_f16(x))
#define ROUND_BF16(x) fl_bf16_to_f64(fl_f64_to_bf16(x))
#define ROUND_F32(x) ((double)(float)(x))

REF_LOOP_1(clamp_f16, f16, f16, (float)CLAMP(ROUND_F16))
REF_LOOP_1(clamp_bf16, bf16, bf16, (float)CLAMP(ROUND_BF16))
REF_LOOP_1(clamp_f32, f32, f32, (float)CLAMP(ROUND_F32))
REF_LOOP_1(clamp_f64, f64, f64, CLAMP(REF_AS_IS))
REF_UNARY_INTEGERS(clamp, clamp_i(a, lower_i(k0), upper_i(k1)))
static const fl_iter_loop clamp_loops[REF_DTYPES] = {REF_NUMBER_LOOPS(clamp)};
static const ref_pointwise_op clamp_op = {
    {{{REF_TENSOR, 0}, {REF_SCALAR_OR_NONE, 0}, {REF_SCALAR_OR_NONE, 0}}, {{REF_TENSOR, 0}}}, clamp_loops, NULL};

/* ---- fill: no input -------------------------------------------------------------------------- */

REF_LOOP_0(fill_bool, bool, k0.i)
REF_LOOP_0(fill_u8, u8, k0.i)
REF_LOOP_0(fill_i8, i8, k0.i)
REF_LOOP_0(fill_i16, i16, k0.i)
REF_LOOP_0(fill_i32, i32, k0.i)
REF_LOOP_0(fill_i64, i64, k0.i)
REF_LOOP_0(fill_f32, f32, (float)k0.f)
REF_LOOP_0(fill_f64, f64, k0.f)
REF_LOOP_0(fill_f16, half_bits, fl_f64_to_f16(k0.f))
REF_LOOP_0(fill_bf16, half_bits, fl_f64_to_bf16(k0.f))
static const fl_iter_loop fill_loops[REF_DTYPES] = {REF_ALL_LOOPS(fill)};
static const ref_pointwise_op fill_op = {{{{REF_SCALAR, 0}}, {{REF_TENSOR, 0}}}, fill_loops, NULL};

/* ---- The table ------------------------------------------------------------------------------- */

#define EXACT(OP, ROWS, USER) REF_POINTWISE(OP, ROWS, FL_TIER_EXACT, FL_KERNEL_INPLACE_OK, USER)
#define ACCURATE(OP, ROWS, USER) REF_POINTWISE(OP, ROWS, FL_TIER_ACCURATE, FL_KERNEL_INPLACE_OK, USER)

const fl_kernel ref_kernels_pointwise_unary[] = {
    ACCURATE("reciprocal", ref_rows_floats, &reciprocal_op),
    ACCURATE("exp", ref_rows_floats, &exp_op),
    ACCURATE("log", ref_rows_floats, &log_op),
    ACCURATE("sqrt", ref_rows_floats, &sqrt_op),
    ACCURATE("rsqrt", ref_rows_floats, &rsqrt_op),
    ACCURATE("sin", ref_rows_floats, &sin_op),
    ACCURATE("cos", ref_rows_floats, &cos_op),
    ACCURATE("tanh", ref_rows_floats, &tanh_op),
    ACCURATE("erf", ref_rows_floats, &erf_op),
    ACCURATE("sigmoid", ref_rows_floats, &sigmoid_op),
    ACCURATE("silu", ref_rows_floats, &silu_op),
    ACCURATE("gelu", ref_rows_floats, &gelu_op),
    EXACT("neg", ref_rows_numbers, &neg_op),
    EXACT("abs", ref_rows_numbers, &abs_op),
    EXACT("relu", ref_rows_numbers, &relu_op),
    EXACT("floor", ref_rows_numbers, &floor_op),
    EXACT("ceil", ref_rows_numbers, &ceil_op),
    EXACT("round", ref_rows_numbers, &round_op),
    EXACT("trunc", ref_rows_numbers, &trunc_op),
    EXACT("sign", ref_rows_all, &sign_op),
    EXACT("bitwise_not", ref_rows_integers_and_bool, &bitwise_not_op),
    EXACT("clamp", ref_rows_numbers, &clamp_op),
    REF_POINTWISE("fill.Scalar", ref_rows_all, FL_TIER_EXACT, 0, &fill_op),
};

const uint32_t ref_kernels_pointwise_unary_count = REF_COUNT(ref_kernels_pointwise_unary);
