/* scan.c - cumsum: running sums along one dimension. */
#include "reduce.h"

typedef struct {
  ref_view in;
  ref_view out;
  uint32_t mask;
} scan_work;

/*
 * Replaces `count` values by their running sums, which continue from *carry. They begin at zero and take the carry
 * afterwards, so that the longest path is a chunk and the number of chunks, not the whole line.
 */
#define RUNNING_SUMS(name, SUM)                                             \
  static void running_sums_##name(SUM* values, int64_t count, SUM* carry) { \
    SUM sum = 0;                                                            \
    for (int64_t i = 0; i < count; i++) {                                   \
      sum += values[i];                                                     \
      values[i] = *carry + sum;                                             \
    }                                                                       \
    *carry += sum;                                                          \
  }

RUNNING_SUMS(f32, float)
RUNNING_SUMS(f64, double)
RUNNING_SUMS(i64, uint64_t) /* wraps */

static void running_sums(ref_lane lane, int64_t count, void* values, ref_value* carry) {
  switch (lane) {
    case REF_LANE_F32:
      running_sums_f32(values, count, &carry->f32);
      break;
    case REF_LANE_F64:
      running_sums_f64(values, count, &carry->f64);
      break;
    default:
      running_sums_i64(values, count, (uint64_t*)&carry->i64);
      break;
  }
}

static void scan_execute(const void* payload) {
  const scan_work* work = payload;
  const uint32_t in_dtype = work->in.dtype;
  const uint32_t out_dtype = work->out.dtype;
  const ref_lane lane = ref_lane_of(in_dtype);
  const ref_reduction in = ref_reduction_of(&work->in, work->mask);
  const ref_reduction out = ref_reduction_of(&work->out, work->mask);
  double values[REF_CHUNK];
  for (int64_t line = 0; line < in.kept.count; line++) {
    const char* from = ref_element(in_dtype, in.data, &in.kept, line);
    char* to = ref_element(out_dtype, out.data, &out.kept, line);
    ref_value carry = {.i64 = 0}; /* all bits 0: zero in every lane */
    for (int64_t first = 0; first < in.reduced.count; first += REF_CHUNK) {
      const int64_t left = in.reduced.count - first;
      const int64_t count = left < REF_CHUNK ? left : REF_CHUNK;
      ref_load(in_dtype, from, &in.reduced, first, count, values);
      running_sums(lane, count, values, &carry);
      ref_store(out_dtype, to, &out.reduced, first, count, values);
    }
  }
}

static fl_status scan_check(const fl_kernel* kernel, const fl_call* call, uint32_t* mask, fl_error* err) {
  ref_types types;
  FL_TRY(ref_check(kernel, call, &types, err));
  const fl_tensor* in = call->args[0].value.tensor;
  FL_TRY(ref_dims_mask(kernel, &call->args[1], in->ndim, mask, err));
  return ref_check_shape(kernel, in, call->outs[0], err);
}

fl_status ref_cumsum_plan(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                           fl_error* err) {
  uint32_t mask = 0;
  FL_TRY(ref_check_plan(device, out, err));
  FL_TRY(scan_check(kernel, call, &mask, err));
  fl_plan_set(out, 0, 0, 0);
  return FL_OK;
}

fl_status ref_cumsum_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  scan_work work;
  FL_TRY(scan_check(kernel, call, &work.mask, err));
  FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work.in, err));
  FL_TRY(ref_view_of(stream, call->outs[0], &work.out, err));
  if (work.out.numel == 0) {
    return FL_OK;
  }
  return ref_submit(stream, scan_execute, &work, sizeof work, err);
}

const ref_signature ref_cumsum_signature = {
    .args = {{REF_TENSOR, 0}, {REF_INT, 0}},
    .outs = {{REF_TENSOR, 1}},
};
