/* runs.c - elements of every dtype to and from the three lanes. */
#include "torch_fl/sdk/dtype.h"

#include "axis.h"

ref_lane ref_lane_of(uint32_t dtype) {
  switch (dtype) {
    case FL_DTYPE_F16:
    case FL_DTYPE_BF16:
    case FL_DTYPE_F32:
      return REF_LANE_F32;
    case FL_DTYPE_F64:
      return REF_LANE_F64;
    default:
      return REF_LANE_I64;
  }
}

int64_t ref_lane_bytes(ref_lane lane) {
  return lane == REF_LANE_F32 ? 4 : 8;
}

/* A pair of functions for a dtype stored as STORED and calculated as LANE. Neighbours have a loop of their own, which
 * compilers turn into vector code. */
#define REF_RUNS(name, STORED, LANE, WIDEN, NARROW)                                             \
  REF_HOT static void load_##name(const char* source, int64_t step, int64_t count, void* values) { \
    const STORED* from = (const STORED*)source;                                                 \
    LANE* to = values;                                                                          \
    if (step == 1) {                                                                            \
      for (int64_t i = 0; i < count; i++) {                                                     \
        to[i] = WIDEN(from[i]);                                                                 \
      }                                                                                         \
      return;                                                                                   \
    }                                                                                           \
    for (int64_t i = 0; i < count; i++) {                                                       \
      to[i] = WIDEN(from[i * step]);                                                            \
    }                                                                                           \
  }                                                                                             \
  REF_HOT static void store_##name(char* target, int64_t step, int64_t count, const void* values) { \
    STORED* to = (STORED*)target;                                                               \
    const LANE* from = values;                                                                  \
    if (step == 1) {                                                                            \
      for (int64_t i = 0; i < count; i++) {                                                     \
        to[i] = NARROW(from[i]);                                                                \
      }                                                                                         \
      return;                                                                                   \
    }                                                                                           \
    for (int64_t i = 0; i < count; i++) {                                                       \
      to[i * step] = NARROW(from[i]);                                                           \
    }                                                                                           \
  }

#define REF_SAME(x) (x)
#define REF_TRUTH(x) ((x) != 0)
#define REF_WRAP_U8(x) ((uint8_t)(uint64_t)(x))
#define REF_WRAP_I8(x) ((int8_t)(uint8_t)(uint64_t)(x))
#define REF_WRAP_I16(x) ((int16_t)(uint16_t)(uint64_t)(x))
#define REF_WRAP_I32(x) ((int32_t)(uint32_t)(uint64_t)(x))

REF_RUNS(bool, uint8_t, int64_t, REF_TRUTH, REF_TRUTH)
REF_RUNS(u8, uint8_t, int64_t, REF_SAME, REF_WRAP_U8)
REF_RUNS(i8, int8_t, int64_t, REF_SAME, REF_WRAP_I8)
REF_RUNS(i16, int16_t, int64_t, REF_SAME, REF_WRAP_I16)
REF_RUNS(i32, int32_t, int64_t, REF_SAME, REF_WRAP_I32)
REF_RUNS(i64, int64_t, int64_t, REF_SAME, REF_SAME)
REF_RUNS(f16, uint16_t, float, fl_f16_to_f32, fl_f32_to_f16)
REF_RUNS(bf16, uint16_t, float, fl_bf16_to_f32, fl_f32_to_bf16)
REF_RUNS(f32, float, float, REF_SAME, REF_SAME)
REF_RUNS(f64, double, double, REF_SAME, REF_SAME)

typedef struct {
  void (*load)(const char* source, int64_t step, int64_t count, void* values);
  void (*store)(char* target, int64_t step, int64_t count, const void* values);
} ref_runs;

static const ref_runs runs[] = {
    [FL_DTYPE_BOOL] = {load_bool, store_bool}, [FL_DTYPE_U8] = {load_u8, store_u8},
    [FL_DTYPE_I8] = {load_i8, store_i8},       [FL_DTYPE_I16] = {load_i16, store_i16},
    [FL_DTYPE_I32] = {load_i32, store_i32},    [FL_DTYPE_I64] = {load_i64, store_i64},
    [FL_DTYPE_F16] = {load_f16, store_f16},    [FL_DTYPE_BF16] = {load_bf16, store_bf16},
    [FL_DTYPE_F32] = {load_f32, store_f32},    [FL_DTYPE_F64] = {load_f64, store_f64},
};

void ref_load_run(uint32_t dtype, const char* source, int64_t step, int64_t count, void* values) {
  runs[dtype].load(source, step, count, values);
}

void ref_store_run(uint32_t dtype, char* target, int64_t step, int64_t count, const void* values) {
  runs[dtype].store(target, step, count, values);
}
