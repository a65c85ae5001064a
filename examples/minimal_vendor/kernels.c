/*
 * kernels.c - what all kernels need, the operator mm in f32, and the kernel table.
 *
 * plan and run of an operator begin with the same check, so that what plan admits run serves [FL-KERNEL-007]: what
 * contradicts the registry is FL_INVALID_ARGUMENT, what merely has no row here FL_UNIMPLEMENTED.
 */
#include "minimal.h"

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))

/* Bytes from element 0 to the end of the farthest element of a tensor with elements; 0 on overflow. */
static uint64_t extent_bytes(const fl_tensor* tensor) {
  uint64_t last = 0;
  for (uint32_t d = 0; d < tensor->ndim; d++) {
    uint64_t reach = 0;
    if (__builtin_mul_overflow((uint64_t)tensor->sizes[d] - 1, (uint64_t)tensor->strides[d], &reach)) return 0;
    if (__builtin_add_overflow(last, reach, &last)) return 0;
  }
  uint64_t bytes = 0;
  if (__builtin_add_overflow(last, 1, &last)) return 0;
  if (__builtin_mul_overflow(last, (uint64_t)fl_dtype_size(tensor->dtype), &bytes)) return 0;
  return bytes;
}

fl_status min_tensor_data(fl_stream stream, const fl_tensor* tensor, char** out, fl_error* err) {
  *out = NULL;
  if (tensor->numel == 0) return FL_OK;
  uint64_t bytes = extent_bytes(tensor);
  if (bytes == 0 || tensor->device != 0 || tensor->byte_offset % fl_dtype_size(tensor->dtype) != 0) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "strides, device or offset of a tensor make no sense");
  }
  return min_locate(stream->device, tensor->base, tensor->byte_offset, bytes, out, err);
}

fl_status min_check_row(const fl_kernel* kernel, uint32_t dtype, fl_error* err) {
  for (uint32_t i = 0; i < kernel->n_rows; i++) {
    if (kernel->rows[i].dtypes[0] == dtype) return FL_OK;
  }
  return fl_fail(err, FL_UNIMPLEMENTED, "%s has no row for %s", kernel->op, fl_dtype_name(dtype));
}

/* ---- mm ---------------------------------------------------------------------------------------------------------- */

typedef struct mm_work {
  char* data[3];         /* out [m, n], self [m, k], mat2 [k, n] */
  int64_t strides[3][2]; /* elements */
  int64_t m;
  int64_t n;
  int64_t k;
} mm_work;

static fl_status check_mm(const fl_kernel* kernel, const fl_call* call, const fl_tensor** tensors, fl_error* err) {
  FL_TRY(fl_check_call(call, 2, 1, err));
  tensors[0] = call->outs[0];
  FL_TRY(fl_arg_tensor(call, 0, &tensors[1], err));
  FL_TRY(fl_arg_tensor(call, 1, &tensors[2], err));
  for (uint32_t i = 0; i < 3; i++) {
    FL_TRY(fl_check_tensor(tensors[i], MIN_MAX_NDIM, err));
    if (tensors[i]->ndim != 2 || tensors[i]->dtype != tensors[0]->dtype) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "mm takes matrices of one dtype");
    }
  }
  const int64_t *out = tensors[0]->sizes, *self = tensors[1]->sizes, *mat2 = tensors[2]->sizes;
  if (out[0] != self[0] || self[1] != mat2[0] || out[1] != mat2[1]) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "the shapes of a matrix product do not fit");
  }
  return min_check_row(kernel, tensors[0]->dtype, err);
}

static fl_status plan_mm(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out, fl_error* err) {
  const fl_tensor* tensors[3];
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  FL_TRY(fl_check_plan(out, err));
  FL_TRY(check_mm(kernel, call, tensors, err));
  fl_plan_set(out, 0, 0, 0);
  return FL_OK;
}

static float load_f32(const mm_work* work, uint32_t tensor, int64_t row, int64_t column) {
  const int64_t* strides = work->strides[tensor];
  float value;
  memcpy(&value, work->data[tensor] + (row * strides[0] + column * strides[1]) * 4, sizeof value);
  return value;
}

/* One accumulator, one product after the other: the row's path length is 0, "n - 1 additions". */
static fl_status work_mm(void* payload) {
  const mm_work* work = payload;
  for (int64_t row = 0; row < work->m; row++) {
    for (int64_t column = 0; column < work->n; column++) {
      float sum = 0.0f;
      for (int64_t i = 0; i < work->k; i++) sum += load_f32(work, 1, row, i) * load_f32(work, 2, i, column);
      int64_t element = row * work->strides[0][0] + column * work->strides[0][1];
      memcpy(work->data[0] + element * 4, &sum, sizeof sum);
    }
  }
  return FL_OK;
}

static fl_status run_mm(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  const fl_tensor* tensors[3];
  FL_TRY(check_mm(kernel, call, tensors, err));
  FL_TRY(fl_check_pointer(stream, "stream", err));
  mm_work work;
  memset(&work, 0, sizeof work);
  work.m = tensors[0]->sizes[0];
  work.n = tensors[0]->sizes[1];
  work.k = tensors[1]->sizes[1];
  for (uint32_t i = 0; i < 3; i++) {
    FL_TRY(min_tensor_data(stream, tensors[i], &work.data[i], err));
    memcpy(work.strides[i], tensors[i]->strides, sizeof work.strides[i]);
  }
  return min_submit(stream, work_mm, &work, sizeof work, err);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

#define ROW(DTYPE, ACCUMULATOR) \
  {.struct_size = sizeof(fl_kernel_row), .kind = FL_KIND_KERNEL_ROW, .dtypes = {DTYPE}, .accumulator = ACCUMULATOR}

static const fl_kernel_row pointwise_rows[] = {
    ROW(FL_DTYPE_F32, FL_DTYPE_NONE),
    ROW(FL_DTYPE_I32, FL_DTYPE_NONE),
    ROW(FL_DTYPE_I64, FL_DTYPE_NONE),
};
static const fl_kernel_row integer_rows[] = {ROW(FL_DTYPE_I32, FL_DTYPE_NONE), ROW(FL_DTYPE_I64, FL_DTYPE_NONE)};
static const fl_kernel_row mm_rows[] = {ROW(FL_DTYPE_F32, FL_DTYPE_F32)};

#define KERNEL(OP, ROWS, USER, PLAN, RUN)                  \
  {.struct_size = sizeof(fl_kernel),                       \
   .kind = FL_KIND_KERNEL,                                 \
   .op = OP,                                               \
   .variant = "plain",                                     \
   .revision = 1,                                          \
   .n_types = 1,                                           \
   .rows = ROWS,                                           \
   .n_rows = COUNT(ROWS),                                  \
   .row_stride = sizeof(fl_kernel_row),                    \
   .layouts = FL_LAYOUT_STRIDED,                           \
   .max_ndim = MIN_MAX_NDIM,                               \
   .flags = FL_KERNEL_DETERMINISTIC | FL_KERNEL_PLAN_PURE, \
   .tier = FL_TIER_ACCURATE,                               \
   .user = USER,                                           \
   .plan = PLAN,                                           \
   .run = RUN}

static const fl_kernel kernels[] = {
    KERNEL("aten::add.Tensor", pointwise_rows, &min_add, min_pointwise_plan, min_pointwise_run),
    KERNEL("aten::clamp", pointwise_rows, &min_clamp, min_pointwise_plan, min_pointwise_run),
    KERNEL("aten::mm", mm_rows, NULL, plan_mm, run_mm),
    KERNEL("aten::mul.Tensor", pointwise_rows, &min_mul, min_pointwise_plan, min_pointwise_run),
    KERNEL("aten::relu", pointwise_rows, &min_relu, min_pointwise_plan, min_pointwise_run),
    KERNEL("aten::remainder.Tensor", integer_rows, &min_remainder, min_pointwise_plan, min_pointwise_run),
};

static const fl_kernel_table table = {
    .struct_size = sizeof(fl_kernel_table),
    .kind = FL_KIND_KERNEL_TABLE,
    .entry_stride = sizeof(fl_kernel),
    .count = COUNT(kernels),
    .entries = kernels,
};

static fl_status get_kernels(fl_device device, const fl_kernel_table** out, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  FL_TRY(fl_check_pointer(out, "out", err));
  *out = &table;
  return FL_OK;
}

const fl_kernel_api min_kernel_api = {
    .struct_size = sizeof(fl_kernel_api),
    .kind = FL_KIND_KERNEL_API,
    .kernels = get_kernels,
};
