/*
 * torch_fl/sdk/dtype.h - element types: sizes, names, and the 16-bit floating formats in plain C.
 *
 * Conversions to 16 bits round once, half to even, from float as well as from double (through double -> float
 * rounded to odd, Boldo and Melquiond 2008, so that no value is rounded twice). They assume the default rounding mode
 * and that subnormals are kept; NaN stays NaN (quiet), its sign is kept. All are branch-light so that loops vectorise.
 */
#ifndef TORCH_FL_SDK_DTYPE_H
#define TORCH_FL_SDK_DTYPE_H

#include <string.h>

#include "torch_fl/plugin.h"

/* Bytes of one element, 0 for an unknown dtype. */
static inline uint32_t fl_dtype_size(uint32_t dtype) {
  switch (dtype) {
    case FL_DTYPE_BOOL:
    case FL_DTYPE_U8:
    case FL_DTYPE_I8:
    case FL_DTYPE_F8E4M3FN:
    case FL_DTYPE_F8E5M2:
      return 1;
    case FL_DTYPE_I16:
    case FL_DTYPE_U16:
    case FL_DTYPE_F16:
    case FL_DTYPE_BF16:
      return 2;
    case FL_DTYPE_I32:
    case FL_DTYPE_U32:
    case FL_DTYPE_F32:
    case FL_DTYPE_C32:
      return 4;
    case FL_DTYPE_I64:
    case FL_DTYPE_U64:
    case FL_DTYPE_F64:
    case FL_DTYPE_C64:
      return 8;
    case FL_DTYPE_C128:
      return 16;
    default:
      return 0;
  }
}

/* Short name ("f32"), "?" for an unknown dtype. */
static inline const char* fl_dtype_name(uint32_t dtype) {
  static const char* const names[] = {"none", "bool", "u8",  "i8",  "i16", "i32", "i64",  "u16",      "u32",   "u64",
                                      "f16",  "bf16", "f32", "f64", "c32", "c64", "c128", "f8e4m3fn", "f8e5m2"};
  return dtype < sizeof names / sizeof names[0] ? names[dtype] : "?";
}

/* Real floating formats of 16 bits and more. */
static inline int fl_dtype_is_float(uint32_t dtype) {
  return dtype == FL_DTYPE_F16 || dtype == FL_DTYPE_BF16 || dtype == FL_DTYPE_F32 || dtype == FL_DTYPE_F64;
}

/* Signed and unsigned integers; bool is none. */
static inline int fl_dtype_is_integer(uint32_t dtype) { return dtype >= FL_DTYPE_U8 && dtype <= FL_DTYPE_U64; }

static inline uint32_t fl_f32_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float fl_f32_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint64_t fl_f64_bits(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline double fl_f64_from_bits(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* double -> float rounded to odd: truncated, with the last bit set when anything was cut off. */
static inline float fl_f64_to_f32_odd(double value) {
  float nearest = (float)value;
  uint32_t bits = fl_f32_bits(nearest);
  uint64_t wanted = fl_f64_bits(value) & 0x7FFFFFFFFFFFFFFFu;
  uint64_t got = fl_f64_bits((double)nearest) & 0x7FFFFFFFFFFFFFFFu;
  /* Where nearest is even and inexact, its odd neighbour towards value is the answer. NaN compares as it may:
   * its bits are only moved within the payload, and inf is exact. */
  uint32_t even = (bits & 1u) ^ 1u;
  uint32_t above = got > wanted;
  uint32_t below = got < wanted;
  bits = bits + (even & below) - (even & above);
  return value == value ? fl_f32_from_bits(bits) : nearest;
}

static inline float fl_bf16_to_f32(uint16_t half) { return fl_f32_from_bits((uint32_t)half << 16); }

static inline double fl_bf16_to_f64(uint16_t half) { return (double)fl_bf16_to_f32(half); }

static inline uint16_t fl_f32_to_bf16(float value) {
  uint32_t bits = fl_f32_bits(value);
  uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  uint32_t nan = (bits >> 16) | 0x40u;
  return (uint16_t)((bits & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded);
}

static inline uint16_t fl_f64_to_bf16(double value) { return fl_f32_to_bf16(fl_f64_to_f32_odd(value)); }

static inline float fl_f16_to_f32(uint16_t half) {
  uint32_t magnitude = (uint32_t)(half & 0x7FFFu) << 13;
  uint32_t exponent = magnitude & 0x0F800000u;
  uint32_t normal = magnitude + (112u << 23);            /* bias 15 -> 127 */
  uint32_t special = normal + (112u << 23);              /* inf, NaN: exponent 31 -> 255 */
  float shifted = fl_f32_from_bits(normal + (1u << 23)); /* subnormal m * 2^-24 = (2^-14 + m * 2^-24) - 2^-14 */
  uint32_t subnormal = fl_f32_bits(shifted - 0x1p-14f);
  uint32_t bits = exponent == 0 ? subnormal : exponent == 0x0F800000u ? special : normal;
  return fl_f32_from_bits(bits | ((uint32_t)(half & 0x8000u) << 16));
}

static inline double fl_f16_to_f64(uint16_t half) { return (double)fl_f16_to_f32(half); }

static inline uint16_t fl_f32_to_f16(float value) {
  uint32_t bits = fl_f32_bits(value);
  uint32_t magnitude = bits & 0x7FFFFFFFu;
  /* Normal results: add half a spacing (less one bit on even), carry into the exponent is wanted, 65520 -> inf. */
  uint32_t normal = (magnitude - (112u << 23) + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
  /* Below 2^-14: adding 0.5 puts the spacing 2^-24 into the last place, so the addition rounds. */
  uint32_t subnormal = fl_f32_bits(fl_f32_from_bits(magnitude < 0x38800000u ? magnitude : 0u) + 0.5f) - 0x3F000000u;
  uint32_t special = magnitude > 0x7F800000u ? 0x7E00u | ((magnitude >> 13) & 0x3FFu) : 0x7C00u;
  uint32_t half = magnitude >= 0x47800000u ? special : magnitude < 0x38800000u ? subnormal : normal;
  return (uint16_t)(half | ((bits >> 16) & 0x8000u));
}

static inline uint16_t fl_f64_to_f16(double value) { return fl_f32_to_f16(fl_f64_to_f32_odd(value)); }

#endif /* TORCH_FL_SDK_DTYPE_H */
