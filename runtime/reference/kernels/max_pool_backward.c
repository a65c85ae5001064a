/*
 * max_pool_backward.c - the gradient of max pooling: each output's gradient goes to the place that its index names.
 *
 * Windows that share their largest element add up there, in the row-major order of the outputs. An index outside of the
 * plane adds nothing [FL-KERNEL-013].
 */
#include "pool_sums.h"
#include "reduce.h"

typedef struct {
  ref_view grad_output;
  ref_view indices;
  ref_view grad_input;
  char* workspace;
} max_backward_work;

#define ADD_AT(NAME, VALUE)                                                                                       \
  static void NAME(const void* gradients, const int64_t* places, int64_t count, int64_t size, void* sums) {       \
    const VALUE* from = gradients;                                                                                \
    VALUE* to = sums;                                                                                             \
    for (int64_t i = 0; i < count; i++) {                                                                         \
      if ((uint64_t)places[i] < (uint64_t)size) {                                                                 \
        to[places[i]] += from[i];                                                                                 \
      }                                                                                                           \
    }                                                                                                             \
  }

ADD_AT(add_at_f32, float)
ADD_AT(add_at_f64, double)

/* Elements of a plane, a run of at most REF_CHUNK of them at a time. */
typedef struct {
  const ref_view* view;
  ref_axis planes;
  ref_axis positions;
  int are_values; /* they lie in memory as values of their lane do */
} plane_reader;

static plane_reader reader_of(const ref_view* view) {
  plane_reader reader = {view, pool_planes(view), {0}, 0};
  ref_axis_of(view, 0xCu, &reader.positions);
  const int is_value = view->dtype == FL_DTYPE_F32 || view->dtype == FL_DTYPE_F64 || view->dtype == FL_DTYPE_I64;
  const int is_run = reader.positions.ndim <= 1;
  const int is_dense = reader.positions.count == 1 || ref_axis_step(&reader.positions) == 1;
  reader.are_values = is_value && is_run && is_dense;
  return reader;
}

/* Values first ... first + count - 1 of a plane, in `held` where they have to be loaded. */
static const void* read_values(const plane_reader* reader, int64_t plane, int64_t first, int64_t count, void* held) {
  const uint32_t dtype = reader->view->dtype;
  const char* origin = ref_element(dtype, reader->view->data, &reader->planes, plane);
  if (reader->are_values) {
    return origin + first * (int64_t)fl_dtype_size(dtype);
  }
  ref_load(dtype, origin, &reader->positions, first, count, held);
  return held;
}

static void max_backward_execute(const void* payload) {
  const max_backward_work* work = payload;
  const plane_reader gradients = reader_of(&work->grad_output);
  const plane_reader indices = reader_of(&work->indices);
  const pool_sums sums = pool_sums_of(&work->grad_input, work->workspace);
  const int is_single = ref_lane_of(work->grad_input.dtype) == REF_LANE_F32;
  const int64_t size = sums.positions.count;
  for (int64_t plane = 0; plane < sums.planes.count; plane++) {
    char* to = pool_sums_begin(&sums, plane);
    for (int64_t first = 0; first < gradients.positions.count; first += REF_CHUNK) {
      double held_values[REF_CHUNK];
      int64_t held_places[REF_CHUNK];
      const int64_t left = gradients.positions.count - first;
      const int64_t count = left < REF_CHUNK ? left : REF_CHUNK;
      const void* values = read_values(&gradients, plane, first, count, held_values);
      const int64_t* places = read_values(&indices, plane, first, count, held_places);
      if (is_single) {
        add_at_f32(values, places, count, size, to);
      } else {
        add_at_f64(values, places, count, size, to);
      }
    }
    pool_sums_end(&sums, plane);
  }
}

static fl_status max_backward_check(const fl_kernel* kernel, const fl_call* call, fl_error* err) {
  const fl_tensor* grad_output = call->args[0].value.tensor;
  const fl_tensor* self = call->args[1].value.tensor;
  conv_shape shape;
  FL_TRY(pool_shape_of(kernel, call, 2, 1, self, grad_output, &shape, err));
  FL_TRY(ref_check_shape(kernel, grad_output, call->args[6].value.tensor, err));
  return ref_check_shape(kernel, self, call->outs[0], err);
}

static fl_status max_backward_plan(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                                   fl_error* err) {
  FL_TRY(ref_plan_op(kernel, device, call, out, err));
  fl_plan_set(out, (uint64_t)pool_sums_bytes(call->outs[0]), 64, 0);
  return FL_OK;
}

static fl_status max_backward_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  max_backward_work work;
  FL_TRY(ref_begin_run(kernel, stream, call, err));
  FL_TRY(ref_view_of(stream, call->args[0].value.tensor, &work.grad_output, err));
  FL_TRY(ref_view_of(stream, call->args[6].value.tensor, &work.indices, err));
  FL_TRY(ref_view_of(stream, call->outs[0], &work.grad_input, err));
  FL_TRY(ref_workspace(stream, call, (uint64_t)pool_sums_bytes(call->outs[0]), &work.workspace, err));
  if (work.grad_input.numel == 0) {
    return FL_OK;
  }
  pool_four_dims(&work.grad_output);
  pool_four_dims(&work.indices);
  pool_four_dims(&work.grad_input);
  return ref_submit(stream, max_backward_execute, &work, sizeof work, err);
}

static const ref_op max_backward_op = {
    {.args = {{REF_TENSOR, 0},
              {REF_TENSOR, 0},
              {REF_INT_LIST, 0},
              {REF_INT_LIST, 0},
              {REF_INT_LIST, 0},
              {REF_INT_LIST, 0},
              {REF_TENSOR, REF_FIXED(FL_DTYPE_I64)}},
     .outs = {{REF_TENSOR, 0}}},
    max_backward_check,
};

const fl_kernel ref_kernels_max_pool_backward[] = {
    REF_KERNEL("max_pool2d_with_indices_backward", 1, ref_rows_sums, FL_TIER_ACCURATE, 0, &max_backward_op,
               max_backward_plan, max_backward_run),
};
const uint32_t ref_kernels_max_pool_backward_count = REF_COUNT(ref_kernels_max_pool_backward);
