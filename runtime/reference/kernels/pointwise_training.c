/*
 * pointwise_training.c - backward operators of activations and dropout, the steps of optimisers, interpolation.
 *
 * Halves compute in float and f32 in f32: every value is a few products and sums, whose roundings the budgets count.
 */
#include "elements.h"
#include "pointwise.h"

#define BINARY {{{REF_TENSOR, 0}, {REF_TENSOR, 0}}, {{REF_TENSOR, 0}}}
#define BINARY_WITH_NUMBER {{{REF_TENSOR, 0}, {REF_TENSOR, 0}, {REF_SCALAR, 0}}, {{REF_TENSOR, 0}}}
#define TERNARY {{{REF_TENSOR, 0}, {REF_TENSOR, 0}, {REF_TENSOR, 0}}, {{REF_TENSOR, 0}}}
#define TERNARY_WITH_NUMBER \
  {{{REF_TENSOR, 0}, {REF_TENSOR, 0}, {REF_TENSOR, 0}, {REF_SCALAR, 0}}, {{REF_TENSOR, 0}}}
#define MASKED \
  {{{REF_TENSOR, 0}, {REF_TENSOR, REF_FIXED(FL_DTYPE_BOOL)}, {REF_FLOAT, 0}}, {{REF_TENSOR, 0}}}

/* The first number of the call in the type that f32 and halves compute in. */
#define NUMBER_F ((float)k0.f)

/* ---- Backward operators ---------------------------------------------------------------------- */

/* a is the gradient, whose bits are kept, b what went into the activation: NaN is not below the threshold. */
REF_LOOP_2(threshold_backward_f16, bits16, bits16, f16, b <= NUMBER_F ? 0 : a)
REF_LOOP_2(threshold_backward_bf16, bits16, bits16, bf16, b <= NUMBER_F ? 0 : a)
REF_LOOP_2(threshold_backward_f32, f32, f32, f32, b <= NUMBER_F ? 0 : a)
REF_LOOP_2(threshold_backward_f64, f64, f64, f64, b <= k0.f ? 0 : a)
static const fl_iter_loop threshold_backward_loops[REF_DTYPES] = {REF_FLOAT_LOOPS(threshold_backward)};
static const ref_pointwise_op threshold_backward_op = {BINARY_WITH_NUMBER, threshold_backward_loops, NULL};

REF_BINARY_FLOATS(sigmoid_backward, a * (1 - b) * b, a * (1 - b) * b)
static const fl_iter_loop sigmoid_backward_loops[REF_DTYPES] = {REF_FLOAT_LOOPS(sigmoid_backward)};
static const ref_pointwise_op sigmoid_backward_op = {BINARY, sigmoid_backward_loops, NULL};

REF_BINARY_FLOATS(tanh_backward, a * (1 - b * b), a * (1 - b * b))
static const fl_iter_loop tanh_backward_loops[REF_DTYPES] = {REF_FLOAT_LOOPS(tanh_backward)};
static const ref_pointwise_op tanh_backward_op = {BINARY, tanh_backward_loops, NULL};

/* b is the mask's byte, 0 or 1. A dropped element is a product with 0, so that NaN stays NaN. */
REF_LOOP_2(dropout_backward_f16, f16, f16, bits8, a * ((float)b * NUMBER_F))
REF_LOOP_2(dropout_backward_bf16, bf16, bf16, bits8, a * ((float)b * NUMBER_F))
REF_LOOP_2(dropout_backward_f32, f32, f32, bits8, a * ((float)b * NUMBER_F))
REF_LOOP_2(dropout_backward_f64, f64, f64, bits8, a * ((double)b * k0.f))
static const fl_iter_loop dropout_backward_loops[REF_DTYPES] = {REF_FLOAT_LOOPS(dropout_backward)};
static const ref_pointwise_op dropout_backward_op = {MASKED, dropout_backward_loops, NULL};

/* ---- Steps of optimisers --------------------------------------------------------------------- */

REF_TERNARY_FLOATS(addcmul, a + NUMBER_F * b * c, a + k0.f * b * c)
REF_TERNARY_INTEGERS(addcmul, add_i(a, mul_i(mul_i(k0.i, b), c)))
static const fl_iter_loop addcmul_loops[REF_DTYPES] = {REF_NUMBER_LOOPS(addcmul)};
static const ref_pointwise_op addcmul_op = {TERNARY_WITH_NUMBER, addcmul_loops, NULL};

REF_TERNARY_FLOATS(addcdiv, a + NUMBER_F * b / c, a + k0.f * b / c)
static const fl_iter_loop addcdiv_loops[REF_DTYPES] = {REF_FLOAT_LOOPS(addcdiv)};
static const ref_pointwise_op addcdiv_op = {TERNARY_WITH_NUMBER, addcdiv_loops, NULL};

/* ---- Interpolation --------------------------------------------------------------------------- */

REF_BINARY_FLOATS(lerp_number, lerp_f(a, b, NUMBER_F), lerp_d(a, b, k0.f))
static const fl_iter_loop lerp_number_loops[REF_DTYPES] = {REF_FLOAT_LOOPS(lerp_number)};
static const ref_pointwise_op lerp_number_op = {BINARY_WITH_NUMBER, lerp_number_loops, NULL};

REF_TERNARY_FLOATS(lerp, lerp_f(a, b, c), lerp_d(a, b, c))
static const fl_iter_loop lerp_loops[REF_DTYPES] = {REF_FLOAT_LOOPS(lerp)};
static const ref_pointwise_op lerp_op = {TERNARY, lerp_loops, NULL};

/* ---- The table ------------------------------------------------------------------------------- */

#define TRAINING(OP, ROWS, TIER, USER) REF_POINTWISE(OP, ROWS, TIER, FL_KERNEL_INPLACE_OK, USER)

const fl_kernel ref_kernels_pointwise_training[] = {
    TRAINING("threshold_backward", ref_rows_floats, FL_TIER_EXACT, &threshold_backward_op),
    TRAINING("sigmoid_backward", ref_rows_floats, FL_TIER_ACCURATE, &sigmoid_backward_op),
    TRAINING("tanh_backward", ref_rows_floats, FL_TIER_ACCURATE, &tanh_backward_op),
    TRAINING("native_dropout_backward", ref_rows_floats, FL_TIER_ACCURATE, &dropout_backward_op),
    TRAINING("addcmul", ref_rows_numbers, FL_TIER_ACCURATE, &addcmul_op),
    TRAINING("addcdiv", ref_rows_floats, FL_TIER_ACCURATE, &addcdiv_op),
    TRAINING("lerp.Scalar", ref_rows_floats, FL_TIER_ACCURATE, &lerp_number_op),
    TRAINING("lerp.Tensor", ref_rows_floats, FL_TIER_ACCURATE, &lerp_op),
};

const uint32_t ref_kernels_pointwise_training_count = REF_COUNT(ref_kernels_pointwise_training);
