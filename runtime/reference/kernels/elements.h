/*
 * elements.h - the functions of one element that are more than an operator of C.
 *
 * Suffixes: _i int64_t (signed arithmetic wraps), _f float, _d double. What is not exact is accurate to a few units
 * in the last place, tails included; a float result that needs more than one rounding is computed in double.
 */
#ifndef REF_KERNELS_ELEMENTS_H
#define REF_KERNELS_ELEMENTS_H

#include <math.h>
#include <stdint.h>

#include "torch_fl/sdk/dtype.h"

/* ---- Integers: two's complement, modulo 2^64 ------------------------------------------------- */

static inline int64_t add_i(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a + (uint64_t)b);
}

static inline int64_t sub_i(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a - (uint64_t)b);
}

static inline int64_t mul_i(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a * (uint64_t)b);
}

static inline int64_t neg_i(int64_t a) {
  return sub_i(0, a);
}

static inline int64_t abs_i(int64_t a) {
  return a < 0 ? neg_i(a) : a;
}

static inline int64_t sign_i(int64_t a) {
  return (a > 0) - (a < 0);
}

/* Division by zero has no meaning: 0 is returned. The least number over -1 wraps to itself. */
static inline int64_t div_trunc_i(int64_t a, int64_t b) {
  if (b == 0) {
    return 0;
  }
  if (b == -1) {
    return neg_i(a);
  }
  return a / b;
}

/* Remainder with the sign of the divisor. */
static inline int64_t remainder_i(int64_t a, int64_t b) {
  if (b == 0 || b == -1) {
    return 0;
  }
  int64_t rest = a % b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    rest += b;
  }
  return rest;
}

static inline int64_t div_floor_i(int64_t a, int64_t b) {
  int64_t quotient = div_trunc_i(a, b);
  if (b != 0 && b != -1 && a % b != 0 && (a < 0) != (b < 0)) {
    quotient -= 1;
  }
  return quotient;
}

/* Negative exponents: 1 and -1 keep their powers, everything else is 0. */
static inline int64_t pow_i(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 1) {
      return 1;
    }
    if (base == -1) {
      return exponent % 2 == 0 ? 1 : -1;
    }
    return 0;
  }
  int64_t power = 1;
  while (exponent > 0) {
    if (exponent % 2 == 1) {
      power = mul_i(power, base);
    }
    base = mul_i(base, base);
    exponent /= 2;
  }
  return power;
}

static inline int64_t min_i(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static inline int64_t max_i(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* min > max gives max. */
static inline int64_t clamp_i(int64_t a, int64_t min, int64_t max) {
  return min_i(max_i(a, min), max);
}

/* ---- Floating types -------------------------------------------------------------------------- */

/* 0 for NaN. */
static inline float sign_f(float a) {
  return (float)((a > 0) - (a < 0));
}

static inline double sign_d(double a) {
  return (double)((a > 0) - (a < 0));
}

static inline float relu_f(float a) {
  return a < 0 ? 0 : a;
}

static inline double relu_d(double a) {
  return a < 0 ? 0 : a;
}

/* A NaN of either side wins. */
static inline float min_f(float a, float b) {
  return a < b || a != a ? a : b;
}

static inline float max_f(float a, float b) {
  return a > b || a != a ? a : b;
}

static inline double min_d(double a, double b) {
  return a < b || a != a ? a : b;
}

static inline double max_d(double a, double b) {
  return a > b || a != a ? a : b;
}

/* In double a quotient of floats is never rounded up to the next integer. */
static inline double div_trunc_d(double a, double b) {
  return trunc(a / b);
}

/* Remainder with the sign of the divisor. */
static inline double remainder_d(double a, double b) {
  double rest = fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) {
    rest += b;
  }
  return rest;
}

/* a - rest is nearly a multiple of b: the quotient is taken to the nearest integer. */
static inline double div_floor_d(double a, double b) {
  if (b == 0) {
    return a / b;
  }
  double rest = fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    quotient -= 1;
  }
  if (quotient == 0) {
    return copysign(0, a / b);
  }
  double below = floor(quotient);
  return quotient - below > 0.5 ? below + 1 : below;
}

/* A NaN of any of the three stays; min > max gives max. The bounds come unrounded. */
static inline double clamp_d(double a, double min, double max) {
  return min_d(max_d(a, min), max);
}

/* a + alpha * b with alpha unrounded, for results that are rounded to float. */
static inline double add_scaled_f(float a, float b, double alpha) {
  return (double)a + alpha * (double)b;
}

static inline double sub_scaled_f(float a, float b, double alpha) {
  return (double)a - alpha * (double)b;
}

/* Fused: a product that leaves the range of double spoils no sum within it. */
static inline double add_scaled_d(double a, double b, double alpha) {
  return fma(alpha, b, a);
}

static inline double sub_scaled_d(double a, double b, double alpha) {
  return fma(-alpha, b, a);
}

/* From a by `weight` of the way to b, or from b back, so that both ends are met. One expression for both, whose operands
 * `far`, all bits 0 or 1, picks: a choice among results keeps compilers from vector code. */
static inline float lerp_f(float a, float b, float weight) {
  uint32_t far = fabsf(weight) < 0.5f ? 0 : UINT32_MAX;
  float start = fl_f32_from_bits((fl_f32_bits(a) & ~far) | (fl_f32_bits(b) & far));
  float behind = fl_f32_from_bits(fl_f32_bits(1) & far);
  return start + (weight - behind) * (b - a);
}

static inline double lerp_d(double a, double b, double weight) {
  uint64_t far = fabs(weight) < 0.5 ? 0 : UINT64_MAX;
  double start = fl_f64_from_bits((fl_f64_bits(a) & ~far) | (fl_f64_bits(b) & far));
  double behind = fl_f64_from_bits(fl_f64_bits(1) & far);
  return start + (weight - behind) * (b - a);
}

static inline double rsqrt_d(double a) {
  return 1 / sqrt(a);
}

/* Both branches take exp of a number <= 0: no overflow, and full relative accuracy in the left tail. */
static inline double sigmoid_d(double a) {
  if (a < 0) {
    double e = exp(a);
    return e / (1 + e);
  }
  return 1 / (1 + exp(-a));
}

static inline double silu_d(double a) {
  return a * sigmoid_d(a);
}

/* x Phi(x); erfc keeps the left tail. */
static inline double gelu_d(double a) {
  const double sqrt_half = 0.70710678118654752440;
  return a * 0.5 * erfc(-a * sqrt_half);
}

/* x (1 + tanh(t)) / 2 = x sigmoid(2 t), without the cancellation of 1 + tanh in the left tail. */
static inline double gelu_tanh_d(double a) {
  const double sqrt_two_over_pi = 0.79788456080286535588;
  double t = sqrt_two_over_pi * (a + 0.044715 * a * a * a);
  return a * sigmoid_d(2 * t);
}

#endif /* REF_KERNELS_ELEMENTS_H */
