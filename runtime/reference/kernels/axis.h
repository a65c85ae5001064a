/*
 * axis.h - reading and writing tensors a line at a time.
 *
 * An axis is a group of a tensor's dimensions seen as one row-major index 0 ... count - 1: the dimensions a
 * reduction sums over, the columns of a matrix, the spatial positions of an image. Neighbouring dimensions
 * that lie evenly in memory are merged, so a contiguous group costs one run whatever its rank.
 *
 * Values are held in one of three calculation types ("lanes"): float for f16, bf16 and f32, double for f64,
 * int64_t for the integers and bool. Loads are exact; stores round once (halves half-to-even) or wrap.
 */
#ifndef REF_KERNELS_AXIS_H
#define REF_KERNELS_AXIS_H

#include "reference.h"

typedef struct {
  int64_t count; /* product of sizes; 1 for no dimension */
  uint32_t ndim;
  int64_t sizes[REF_MAX_NDIM];
  int64_t strides[REF_MAX_NDIM]; /* elements */
} ref_axis;

/* An axis of no dimensions: one element. */
void ref_axis_begin(ref_axis* axis);

/* Adds a dimension inside those already there. */
void ref_axis_add(ref_axis* axis, int64_t size, int64_t stride);

/* The dimensions of `view` whose bit is set in `mask`, in their order. */
void ref_axis_of(const ref_view* view, uint32_t mask, ref_axis* axis);

/* Elements from the axis' origin to element `index`, 0 <= index < count. */
int64_t ref_axis_offset(const ref_axis* axis, int64_t index);

/* How many elements from `index` on, itself included, lie `ref_axis_step` apart. */
int64_t ref_axis_run(const ref_axis* axis, int64_t index);

/* Elements between neighbours of a run; 0 for no dimension. */
int64_t ref_axis_step(const ref_axis* axis);

typedef enum { REF_LANE_F32, REF_LANE_F64, REF_LANE_I64 } ref_lane;

/* One value of any lane. */
typedef union {
  float f32;
  double f64;
  int64_t i64;
} ref_value;

/* The lane that `dtype` (FL_DTYPE_BOOL ... I64, F16, BF16, F32, F64) is calculated in. */
ref_lane ref_lane_of(uint32_t dtype);

/* Bytes of one value of the lane. */
int64_t ref_lane_bytes(ref_lane lane);

/* Loads `count` elements of `dtype`, `step` elements apart from `source` on, as values of its lane. */
void ref_load_run(uint32_t dtype, const char* source, int64_t step, int64_t count, void* values);

/* Stores `count` values of the lane of `dtype` as elements `step` apart from `target` on. */
void ref_store_run(uint32_t dtype, char* target, int64_t step, int64_t count, const void* values);

/* Elements first ... first + count - 1 of an axis whose origin is `origin`. */
void ref_load(uint32_t dtype, const char* origin, const ref_axis* axis, int64_t first, int64_t count, void* values);
void ref_store(uint32_t dtype, char* origin, const ref_axis* axis, int64_t first, int64_t count, const void* values);

/* The address of element `index` of an axis. */
char* ref_element(uint32_t dtype, char* origin, const ref_axis* axis, int64_t index);

/* Values a kernel holds on its stack at once. */
#define REF_CHUNK 256

#endif /* REF_KERNELS_AXIS_H */
