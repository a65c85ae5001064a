/* arg_reduction.c - argmax: where along a dimension the largest value lies. */
#include "reduce.h"

typedef struct {
  ref_view in;
  ref_view out;
  uint32_t mask;
} arg_work;

/* The best value so far and where it lies; index -1: none yet. */
typedef struct {
  ref_value value;
  int64_t index;
} arg_best;

/* Looks through `count` values that begin at index `first`. The first of equal maxima stays; the first NaN wins. */
#define ARG_LOOK(name, ACC, member)                                                       \
  static void look_##name(const ACC* x, int64_t first, int64_t count, arg_best* best) {   \
    for (int64_t i = 0; i < count; i++) {                                                 \
      const ACC top = best->value.member;                                                 \
      const int nan_stays = best->index >= 0 && top != top;                               \
      const int better = best->index < 0 || x[i] > top || x[i] != x[i];                   \
      if (better && !nan_stays) {                                                         \
        best->value.member = x[i];                                                        \
        best->index = first + i;                                                          \
      }                                                                                   \
    }                                                                                     \
  }

ARG_LOOK(f32, float, f32)
ARG_LOOK(f64, double, f64)
ARG_LOOK(i64, int64_t, i64)

static void look(ref_lane lane, const void* values, int64_t first, int64_t count, arg_best* best) {
  switch (lane) {
    case REF_LANE_F32:
      look_f32(values, first, count, best);
      break;
    case REF_LANE_F64:
      look_f64(values, first, count, best);
      break;
    default:
      look_i64(values, first, count, best);
      break;
  }
}

static void arg_execute(const void* payload) {
  const arg_work* work = payload;
  const uint32_t dtype = work->in.dtype;
  const ref_reduction in = ref_reduction_of(&work->in, work->mask);
  ref_axis out_axis;
  double values[REF_CHUNK];
  ref_axis_of(&work->out, ~0u, &out_axis);
  for (int64_t line = 0; line < in.kept.count; line++) {
    const char* from = ref_element(dtype, in.data, &in.kept, line);
    arg_best best = {{.i64 = 0}, -1};
    for (int64_t first = 0; first < in.reduced.count; first += REF_CHUNK) {
      const int64_t left = in.reduced.count - first;
      const int64_t count = left < REF_CHUNK ? left : REF_CHUNK;
      ref_load(dtype, from, &in.reduced, first, count, values);
      look(ref_lane_of(dtype), values, first, count, &best);
    }
    ref_store(FL_DTYPE_I64, work->out.data, &out_axis, line, 1, &best.index);
  }
}

static fl_status arg_check(const fl_kernel* kernel, const fl_call* call, uint32_t* mask, fl_error* err) {
  ref_types types;
  FL_TRY(ref_check(kernel, call, &types, err));
  const fl_tensor* in = call->args[0].value.tensor;
  const fl_tensor* out = call->outs[0];
  FL_TRY(ref_dims_mask(kernel, &call->args[1], in->ndim, mask, err));
  FL_TRY(ref_check_keepdim(kernel, in, *mask, out, err));
  if (in->numel == 0 && out->numel > 0) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: no element to take", kernel->op);
  }
  return FL_OK;
}

fl_status ref_argmax_plan(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                          fl_error* err) {
  uint32_t mask = 0;
  FL_TRY(ref_check_plan(device, out, err));
  FL_TRY(arg_check(kernel, call, &mask, err));
  fl_plan_set(out, 0, 0, 0);
  return FL_OK;
}

fl_status ref_argmax_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  arg_work work;
  FL_TRY(arg_check(kernel, call, &work.mask, err));
  FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work.in, err));
  FL_TRY(ref_view_of(stream, call->outs[0], &work.out, err));
  if (work.out.numel == 0) {
    return FL_OK;
  }
  return ref_submit(stream, arg_execute, &work, sizeof work, err);
}

const ref_signature ref_argmax_signature = {
    .args = {{REF_TENSOR, 0}, {REF_INT, 0}},
    .outs = {{REF_TENSOR, REF_FIXED(FL_DTYPE_I64)}},
};
