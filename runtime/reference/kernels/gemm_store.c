/* gemm_store.c - the sink that scales, adds and stores finished sums. */
#include "gemm.h"

#include "torch_fl/sdk/dtype.h"

ref_value ref_gemm_one(uint32_t dtype) {
  ref_value one;
  if (fl_dtype_is_float(dtype)) {
    one.f64 = 1.0;
  } else {
    one.i64 = 1;
  }
  return one;
}

static int is_one(ref_value factor, ref_lane lane) {
  return lane == REF_LANE_I64 ? factor.i64 == 1 : factor.f64 == 1.0;
}

/* values[i] = alpha * sums[i] + beta * addends[i]; f32 in double, so that only the last step rounds. */
static void combine_f32(const ref_gemm_store* store, const float* sums, const float* addends, int64_t count,
                        float* values) {
  for (int64_t i = 0; i < count; i++) {
    double value = store->alpha.f64 * (double)sums[i];
    if (addends != NULL) {
      value += store->beta.f64 * (double)addends[i];
    }
    values[i] = (float)value;
  }
}

static void combine_f64(const ref_gemm_store* store, const double* sums, const double* addends, int64_t count,
                        double* values) {
  for (int64_t i = 0; i < count; i++) {
    double value = store->alpha.f64 * sums[i];
    if (addends != NULL) {
      value += store->beta.f64 * addends[i];
    }
    values[i] = value;
  }
}

static void combine_i64(const ref_gemm_store* store, const uint64_t* sums, const uint64_t* addends, int64_t count,
                        uint64_t* values) {
  for (int64_t i = 0; i < count; i++) {
    uint64_t value = (uint64_t)store->alpha.i64 * sums[i];
    if (addends != NULL) {
      value += (uint64_t)store->beta.i64 * addends[i];
    }
    values[i] = value;
  }
}

/* Whether all of a row is sums + one addend, such as the bias of a channel. That needs no double: a sum of two floats
 * is rounded once as it is. */
static int has_one_addend(const ref_gemm_store* store, ref_lane lane) {
  const ref_axis* columns = &store->addend_columns;
  const int is_sum = lane == REF_LANE_F32 && is_one(store->alpha, lane) && is_one(store->beta, lane);
  return is_sum && columns->ndim == 1 && columns->strides[0] == 0;
}

REF_HOT static void add_one(const float* sums, float addend, int64_t count, float* values) {
  for (int64_t i = 0; i < count; i++) {
    values[i] = sums[i] + addend;
  }
}

/* The finished values of elements column ... column + columns - 1 of a row. */
static void finish_row(const ref_gemm_store* store, const void* sums, int64_t row, int64_t column, int64_t columns,
                       double* values) {
  const ref_lane lane = ref_lane_of(store->dtype);
  double loaded[GEMM_BLOCK_COLUMNS];
  const void* addends = NULL;
  if (store->addend != NULL) {
    const char* from = ref_element(store->dtype, store->addend, &store->addend_rows, row);
    if (has_one_addend(store, lane)) {
      float addend;
      ref_load_run(store->dtype, from, 0, 1, &addend);
      add_one(sums, addend, columns, (float*)values);
      return;
    }
    ref_load(store->dtype, from, &store->addend_columns, column, columns, loaded);
    addends = loaded;
  }
  switch (lane) {
    case REF_LANE_F32:
      combine_f32(store, sums, addends, columns, (float*)values);
      break;
    case REF_LANE_F64:
      combine_f64(store, sums, addends, columns, values);
      break;
    default:
      combine_i64(store, sums, addends, columns, (uint64_t*)values);
      break;
  }
}

static void store_row(const ref_gemm_store* store, const void* sums, int64_t row, int64_t column, int64_t columns) {
  char* to = ref_element(store->dtype, store->out, &store->rows, row);
  double values[GEMM_BLOCK_COLUMNS];
  if (store->addend == NULL && is_one(store->alpha, ref_lane_of(store->dtype))) {
    ref_store(store->dtype, to, &store->columns, column, columns, sums);
    return;
  }
  finish_row(store, sums, row, column, columns, values);
  ref_store(store->dtype, to, &store->columns, column, columns, values);
}

static void store_tile(const ref_gemm_sink* sink, const void* tile, int64_t ld, int64_t row, int64_t rows,
                       int64_t column, int64_t columns) {
  const ref_gemm_store* store = sink->user;
  const int64_t row_bytes = ld * ref_lane_bytes(ref_lane_of(store->dtype));
  for (int64_t i = 0; i < rows; i++) {
    store_row(store, (const char*)tile + i * row_bytes, row + i, column, columns);
  }
}

ref_gemm_sink ref_gemm_store_sink(const ref_gemm_store* store) {
  const ref_gemm_sink sink = {store_tile, store};
  return sink;
}
