/*
 * kernels.c - four operators: add.Tensor, mul.Tensor and relu in f32, i32 and i64, and mm in f32.
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

/* Element 0 of a checked tensor; NULL where it has no elements. */
static fl_status tensor_data(fl_stream stream, const fl_tensor* tensor, char** out, fl_error* err) {
  *out = NULL;
  if (tensor->numel == 0) return FL_OK;
  uint64_t bytes = extent_bytes(tensor);
  if (bytes == 0 || tensor->device != 0 || tensor->byte_offset % fl_dtype_size(tensor->dtype) != 0) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "strides, device or offset of a tensor make no sense");
  }
  return min_locate(stream->device, tensor->base, tensor->byte_offset, bytes, out, err);
}

/* FL_OK when the kernel has a row for the dtype. */
static fl_status check_row(const fl_kernel* kernel, uint32_t dtype, fl_error* err) {
  for (uint32_t i = 0; i < kernel->n_rows; i++) {
    if (kernel->rows[i].dtypes[0] == dtype) return FL_OK;
  }
  return fl_fail(err, FL_UNIMPLEMENTED, "%s has no row for %s", kernel->op, fl_dtype_name(dtype));
}

/* ---- pointwise --------------------------------------------------------------------------------------------------- */

typedef struct pointwise_op {
  uint32_t n_tensors; /* tensor slots, first in the registry's order */
  uint32_t n_numbers; /* 1: a number follows */
  fl_iter_loop f32;
  fl_iter_loop i32;
  fl_iter_loop i64;
} pointwise_op;

typedef struct pointwise_work {
  fl_iter iter; /* operand 0 is the output */
  fl_iter_loop loop;
  fl_scalar number;
} pointwise_work;

/* NAME(out, a, b): b is read only where the operator has two tensors. k is the number. */
#define LOOP(NAME, TYPE, N_TENSORS, EXPRESSION)                                                  \
  static void NAME(char* const* data, const int64_t* step, int64_t count, const void* context) { \
    const fl_scalar* k = context;                                                                \
    (void)k;                                                                                     \
    for (int64_t i = 0; i < count; i++) {                                                        \
      TYPE a = 0;                                                                                \
      TYPE b = 0;                                                                                \
      memcpy(&a, data[1] + i * step[1], sizeof a);                                               \
      if (N_TENSORS == 2) memcpy(&b, data[2] + i * step[2], sizeof b);                           \
      TYPE result = EXPRESSION;                                                                  \
      memcpy(data[0] + i * step[0], &result, sizeof result);                                     \
    }                                                                                            \
  }

/* Integers wrap: unsigned arithmetic is defined where signed would overflow. */
LOOP(add_f32, float, 2, a + (float)k->f * b)
LOOP(add_i32, uint32_t, 2, a + (uint32_t)k->i * b)
LOOP(add_i64, uint64_t, 2, a + (uint64_t)k->i * b)
LOOP(mul_f32, float, 2, (a * b))
LOOP(mul_i32, uint32_t, 2, (a * b))
LOOP(mul_i64, uint64_t, 2, (a * b))
LOOP(relu_f32, float, 1, a < 0 ? 0.0f : a) /* NaN stays */
LOOP(relu_i32, int32_t, 1, a < 0 ? 0 : a)
LOOP(relu_i64, int64_t, 1, a < 0 ? 0 : a)

static const pointwise_op add_op = {2, 1, add_f32, add_i32, add_i64};
static const pointwise_op mul_op = {2, 0, mul_f32, mul_i32, mul_i64};
static const pointwise_op relu_op = {1, 0, relu_f32, relu_i32, relu_i64};

static fl_status check_pointwise(const fl_kernel* kernel, const fl_call* call, fl_error* err) {
  const pointwise_op* op = kernel->user;
  FL_TRY(fl_check_call(call, op->n_tensors + op->n_numbers, 1, err));
  const fl_tensor* out = call->outs[0];
  FL_TRY(fl_check_tensor(out, MIN_MAX_NDIM, err));
  for (uint32_t slot = 0; slot < op->n_tensors; slot++) {
    const fl_tensor* tensor = NULL;
    FL_TRY(fl_arg_tensor(call, slot, &tensor, err));
    FL_TRY(fl_check_tensor(tensor, MIN_MAX_NDIM, err));
    if (tensor->dtype != out->dtype) return fl_fail(err, FL_INVALID_ARGUMENT, "tensors differ in dtype");
    if (tensor->ndim != out->ndim || (out->ndim > 0 && memcmp(tensor->sizes, out->sizes, out->ndim * 8) != 0)) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "tensors differ in shape");
    }
  }
  FL_TRY(check_row(kernel, out->dtype, err));
  fl_scalar number;
  if (op->n_numbers > 0) FL_TRY(fl_arg_scalar(call, op->n_tensors, out->dtype, &number, err));
  return FL_OK;
}

static fl_status plan_pointwise(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                                fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  FL_TRY(fl_check_plan(out, err));
  FL_TRY(check_pointwise(kernel, call, err));
  fl_plan_set(out, 0, 0, 0);
  return FL_OK;
}

static fl_status work_pointwise(void* payload) {
  const pointwise_work* work = payload;
  fl_iter_run(&work->iter, work->loop, &work->number);
  return FL_OK;
}

static fl_status run_pointwise(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  const pointwise_op* op = kernel->user;
  FL_TRY(check_pointwise(kernel, call, err));
  FL_TRY(fl_check_pointer(stream, "stream", err));
  const fl_tensor* out = call->outs[0];
  pointwise_work work;
  memset(&work, 0, sizeof work);
  work.loop = out->dtype == FL_DTYPE_F32 ? op->f32 : out->dtype == FL_DTYPE_I32 ? op->i32 : op->i64;
  if (op->n_numbers > 0) FL_TRY(fl_arg_scalar(call, op->n_tensors, out->dtype, &work.number, err));
  fl_iter_init(&work.iter, out->ndim, out->sizes);
  for (uint32_t operand = 0; operand <= op->n_tensors; operand++) {
    const fl_tensor* tensor = operand == 0 ? out : call->args[operand - 1].value.tensor;
    char* data = NULL;
    FL_TRY(tensor_data(stream, tensor, &data, err));
    fl_iter_operand(&work.iter, data, tensor->strides, fl_dtype_size(tensor->dtype));
  }
  return min_submit(stream, work_pointwise, &work, sizeof work, err);
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
  return check_row(kernel, tensors[0]->dtype, err);
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
    FL_TRY(tensor_data(stream, tensors[i], &work.data[i], err));
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
    KERNEL("aten::add.Tensor", pointwise_rows, &add_op, plan_pointwise, run_pointwise),
    KERNEL("aten::mm", mm_rows, NULL, plan_mm, run_mm),
    KERNEL("aten::mul.Tensor", pointwise_rows, &mul_op, plan_pointwise, run_pointwise),
    KERNEL("aten::relu", pointwise_rows, &relu_op, plan_pointwise, run_pointwise),
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
