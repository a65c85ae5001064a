/*
 * pointwise.h - the engine of the pointwise kernels: element expressions become loops over any strides, loops
 * become tables by dtype, tables become kernels.
 *
 * Expressions compute in one of three types: int64_t (all integers and bool; the store wraps to the element),
 * float (f32, f16, bf16; the store rounds once) and double (f64). They see the elements as a, b, c and the numbers
 * of the call's scalar and float slots, unrounded, as k0 and k1 (.i for integers and bool, .f for floating types).
 */
#ifndef REF_KERNELS_POINTWISE_H
#define REF_KERNELS_POINTWISE_H

#include <string.h>

#include "kernel.h"
#include "torch_fl/sdk/iterator.h"

#define REF_DTYPES (FL_DTYPE_F64 + 1)

typedef struct ref_pointwise_op {
  ref_signature signature;
  const fl_iter_loop* loops; /* by the dtype of type variable 0 */
  /* Nullable, in place of loops: the loop for this call, or NULL when an argument has a value without meaning. */
  fl_iter_loop (*choose)(const fl_call* call, const ref_types* types);
} ref_pointwise_op;

fl_status ref_pointwise_plan(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                             fl_error* err);
fl_status ref_pointwise_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err);

/* The number of a scalar argument; NONE: both readings 0. */
fl_scalar ref_number(const fl_arg* arg);

/* Stores a number as one element of `dtype`: integers wrap, floating types round once. */
void ref_store_number(char* to, uint32_t dtype, fl_scalar number);

#define REF_POINTWISE(OP, ROWS, TIER, FLAGS, USER) \
  REF_KERNEL(OP, 1, ROWS, TIER, FLAGS, USER, ref_pointwise_plan, ref_pointwise_run)

/* Tells the compiler that iterations are independent: an output lies apart from an input or is exactly it. */
#if defined(__clang__)
#define REF_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define REF_INDEPENDENT _Pragma("GCC ivdep")
#endif

#define REF_INLINE static inline __attribute__((always_inline))

/*
 * Loops, named NAME. OUT, A, B and C are short dtype names. The walk is compiled again for steps known to be
 * those of contiguous operands, and (two operands) of a number for the second one.
 */
#define REF_LOOP_0(NAME, OUT, EXPRESSION)                                                            \
  static void NAME(char* const* data, const int64_t* step, int64_t n, const void* context) {         \
    const fl_scalar k0 = ((const fl_scalar*)context)[0];                                             \
    for (int64_t i = 0; i < n; i++) {                                                                \
      ref_store_##OUT(data[0] + i * step[0], EXPRESSION);                                            \
    }                                                                                                \
  }

#define REF_LOOP_1(NAME, OUT, A, EXPRESSION)                                                         \
  REF_INLINE void NAME##_walk(char* to, int64_t to_step, const char* from_a, int64_t step_a,         \
                              int64_t n, const fl_scalar* k) {                                       \
    const fl_scalar k0 = k[0];                                                                       \
    const fl_scalar k1 = k[1];                                                                       \
    (void)k0;                                                                                        \
    (void)k1;                                                                                        \
    REF_INDEPENDENT                                                                                  \
    for (int64_t i = 0; i < n; i++) {                                                                \
      const ref_##A a = ref_load_##A(from_a + i * step_a);                                           \
      ref_store_##OUT(to + i * to_step, EXPRESSION);                                                 \
    }                                                                                                \
  }                                                                                                  \
  static void NAME(char* const* data, const int64_t* step, int64_t n, const void* k) {               \
    if (step[0] == ref_bytes_##OUT && step[1] == ref_bytes_##A) {                                    \
      NAME##_walk(data[0], ref_bytes_##OUT, data[1], ref_bytes_##A, n, k);                           \
      return;                                                                                        \
    }                                                                                                \
    NAME##_walk(data[0], step[0], data[1], step[1], n, k);                                           \
  }

#define REF_LOOP_2(NAME, OUT, A, B, EXPRESSION)                                                      \
  REF_INLINE void NAME##_walk(char* to, int64_t to_step, const char* from_a, int64_t step_a,         \
                              const char* from_b, int64_t step_b, int64_t n, const fl_scalar* k) {   \
    const fl_scalar k0 = k[0];                                                                       \
    (void)k0;                                                                                        \
    REF_INDEPENDENT                                                                                  \
    for (int64_t i = 0; i < n; i++) {                                                                \
      const ref_##A a = ref_load_##A(from_a + i * step_a);                                           \
      const ref_##B b = ref_load_##B(from_b + i * step_b);                                           \
      ref_store_##OUT(to + i * to_step, EXPRESSION);                                                 \
    }                                                                                                \
  }                                                                                                  \
  static void NAME(char* const* data, const int64_t* step, int64_t n, const void* k) {               \
    if (step[0] == ref_bytes_##OUT && step[1] == ref_bytes_##A && step[2] == ref_bytes_##B) {        \
      NAME##_walk(data[0], ref_bytes_##OUT, data[1], ref_bytes_##A, data[2], ref_bytes_##B, n, k);   \
      return;                                                                                        \
    }                                                                                                \
    if (step[0] == ref_bytes_##OUT && step[1] == ref_bytes_##A && step[2] == 0) {                    \
      char number[ref_bytes_##B];                                                                    \
      memcpy(number, data[2], sizeof number);                                                        \
      NAME##_walk(data[0], ref_bytes_##OUT, data[1], ref_bytes_##A, number, 0, n, k);                \
      return;                                                                                        \
    }                                                                                                \
    NAME##_walk(data[0], step[0], data[1], step[1], data[2], step[2], n, k);                         \
  }

#define REF_LOOP_3(NAME, OUT, A, B, C, EXPRESSION)                                                   \
  REF_INLINE void NAME##_walk(char* to, int64_t to_step, const char* from_a, int64_t step_a,         \
                              const char* from_b, int64_t step_b, const char* from_c,                \
                              int64_t step_c, int64_t n, const fl_scalar* k) {                       \
    const fl_scalar k0 = k[0];                                                                       \
    (void)k0;                                                                                        \
    REF_INDEPENDENT                                                                                  \
    for (int64_t i = 0; i < n; i++) {                                                                \
      const ref_##A a = ref_load_##A(from_a + i * step_a);                                           \
      const ref_##B b = ref_load_##B(from_b + i * step_b);                                           \
      const ref_##C c = ref_load_##C(from_c + i * step_c);                                           \
      ref_store_##OUT(to + i * to_step, EXPRESSION);                                                 \
    }                                                                                                \
  }                                                                                                  \
  static void NAME(char* const* data, const int64_t* step, int64_t n, const void* k) {               \
    if (step[0] == ref_bytes_##OUT && step[1] == ref_bytes_##A && step[2] == ref_bytes_##B &&        \
        step[3] == ref_bytes_##C) {                                                                  \
      NAME##_walk(data[0], ref_bytes_##OUT, data[1], ref_bytes_##A, data[2], ref_bytes_##B, data[3], \
                  ref_bytes_##C, n, k);                                                              \
      return;                                                                                        \
    }                                                                                                \
    NAME##_walk(data[0], step[0], data[1], step[1], data[2], step[2], data[3], step[3], n, k);       \
  }

/* ---- Elements: compute type, size, load and store of each short dtype name ------------------- */

#define REF_ELEMENT(NAME, STORED, COMPUTED, WIDEN, NARROW)          \
  typedef COMPUTED ref_##NAME;                                      \
  enum { ref_bytes_##NAME = sizeof(STORED) };                       \
  static inline COMPUTED ref_load_##NAME(const char* from) {        \
    STORED stored;                                                  \
    memcpy(&stored, from, sizeof stored);                           \
    return WIDEN(stored);                                           \
  }                                                                 \
  static inline void ref_store_##NAME(char* to, COMPUTED computed) { \
    STORED stored = NARROW(computed);                               \
    memcpy(to, &stored, sizeof stored);                             \
  }

#define REF_AS_IS(x) (x)
#define REF_TRUTH(x) ((x) != 0)
#define REF_WRAP_U8(x) ((uint8_t)(uint64_t)(x))
#define REF_WRAP_I8(x) ((int8_t)(uint64_t)(x))
#define REF_WRAP_I16(x) ((int16_t)(uint64_t)(x))
#define REF_WRAP_I32(x) ((int32_t)(uint64_t)(x))

REF_ELEMENT(bool, uint8_t, int64_t, REF_TRUTH, REF_TRUTH)
REF_ELEMENT(u8, uint8_t, int64_t, REF_AS_IS, REF_WRAP_U8)
REF_ELEMENT(i8, int8_t, int64_t, REF_AS_IS, REF_WRAP_I8)
REF_ELEMENT(i16, int16_t, int64_t, REF_AS_IS, REF_WRAP_I16)
REF_ELEMENT(i32, int32_t, int64_t, REF_AS_IS, REF_WRAP_I32)
REF_ELEMENT(i64, int64_t, int64_t, REF_AS_IS, REF_AS_IS)
REF_ELEMENT(f16, uint16_t, float, fl_f16_to_f32, fl_f32_to_f16)
REF_ELEMENT(bf16, uint16_t, float, fl_bf16_to_f32, fl_f32_to_bf16)
REF_ELEMENT(f32, float, float, REF_AS_IS, REF_AS_IS)
REF_ELEMENT(f64, double, double, REF_AS_IS, REF_AS_IS)

/* Bits that are moved, whatever they mean; half_bits: an f16 or bf16 that is rounded already. */
REF_ELEMENT(bits8, uint8_t, uint8_t, REF_AS_IS, REF_AS_IS)
REF_ELEMENT(bits16, uint16_t, uint16_t, REF_AS_IS, REF_AS_IS)
REF_ELEMENT(bits32, uint32_t, uint32_t, REF_AS_IS, REF_AS_IS)
REF_ELEMENT(bits64, uint64_t, uint64_t, REF_AS_IS, REF_AS_IS)
REF_ELEMENT(half_bits, uint16_t, uint16_t, REF_AS_IS, REF_AS_IS)

/* ---- One set of loops per operator ----------------------------------------------------------- */

/* Unary, result of the input's dtype: FLOAT computes in float, DOUBLE in double, INTEGER in int64_t. */
#define REF_UNARY_FLOATS(OP, FLOAT, DOUBLE) \
  REF_LOOP_1(OP##_f16, f16, f16, FLOAT)     \
  REF_LOOP_1(OP##_bf16, bf16, bf16, FLOAT)  \
  REF_LOOP_1(OP##_f32, f32, f32, FLOAT)     \
  REF_LOOP_1(OP##_f64, f64, f64, DOUBLE)

#define REF_UNARY_INTEGERS(OP, INTEGER) \
  REF_LOOP_1(OP##_u8, u8, u8, INTEGER)    \
  REF_LOOP_1(OP##_i8, i8, i8, INTEGER)    \
  REF_LOOP_1(OP##_i16, i16, i16, INTEGER) \
  REF_LOOP_1(OP##_i32, i32, i32, INTEGER) \
  REF_LOOP_1(OP##_i64, i64, i64, INTEGER)

#define REF_BINARY_FLOATS(OP, FLOAT, DOUBLE)      \
  REF_LOOP_2(OP##_f16, f16, f16, f16, FLOAT)      \
  REF_LOOP_2(OP##_bf16, bf16, bf16, bf16, FLOAT)  \
  REF_LOOP_2(OP##_f32, f32, f32, f32, FLOAT)      \
  REF_LOOP_2(OP##_f64, f64, f64, f64, DOUBLE)

#define REF_BINARY_INTEGERS(OP, INTEGER)        \
  REF_LOOP_2(OP##_u8, u8, u8, u8, INTEGER)      \
  REF_LOOP_2(OP##_i8, i8, i8, i8, INTEGER)      \
  REF_LOOP_2(OP##_i16, i16, i16, i16, INTEGER)  \
  REF_LOOP_2(OP##_i32, i32, i32, i32, INTEGER)  \
  REF_LOOP_2(OP##_i64, i64, i64, i64, INTEGER)

#define REF_TERNARY_FLOATS(OP, FLOAT, DOUBLE)          \
  REF_LOOP_3(OP##_f16, f16, f16, f16, f16, FLOAT)      \
  REF_LOOP_3(OP##_bf16, bf16, bf16, bf16, bf16, FLOAT) \
  REF_LOOP_3(OP##_f32, f32, f32, f32, f32, FLOAT)      \
  REF_LOOP_3(OP##_f64, f64, f64, f64, f64, DOUBLE)

#define REF_TERNARY_INTEGERS(OP, INTEGER)          \
  REF_LOOP_3(OP##_u8, u8, u8, u8, u8, INTEGER)     \
  REF_LOOP_3(OP##_i8, i8, i8, i8, i8, INTEGER)     \
  REF_LOOP_3(OP##_i16, i16, i16, i16, i16, INTEGER) \
  REF_LOOP_3(OP##_i32, i32, i32, i32, i32, INTEGER) \
  REF_LOOP_3(OP##_i64, i64, i64, i64, i64, INTEGER)

/* Tables by dtype. */
#define REF_FLOAT_LOOPS(OP)                                                                             \
  [FL_DTYPE_F16] = OP##_f16, [FL_DTYPE_BF16] = OP##_bf16, [FL_DTYPE_F32] = OP##_f32, [FL_DTYPE_F64] = OP##_f64
#define REF_INTEGER_LOOPS(OP)                                                                               \
  [FL_DTYPE_U8] = OP##_u8, [FL_DTYPE_I8] = OP##_i8, [FL_DTYPE_I16] = OP##_i16, [FL_DTYPE_I32] = OP##_i32, \
  [FL_DTYPE_I64] = OP##_i64
#define REF_NUMBER_LOOPS(OP) REF_FLOAT_LOOPS(OP), REF_INTEGER_LOOPS(OP)
#define REF_ALL_LOOPS(OP) REF_NUMBER_LOOPS(OP), [FL_DTYPE_BOOL] = OP##_bool

#endif /* REF_KERNELS_POINTWISE_H */
