/*
 * pointwise.c - add.Tensor, mul.Tensor, relu and clamp in f32, i32 and i64, remainder.Tensor in i32 and i64.
 *
 * One plan and one run serve them all; an operator is its slots and a loop for each dtype. Inputs have the output's
 * shape already [SPEC.md 9], so the SDK's iterator walks them together, whatever their strides.
 */
#include "minimal.h"

struct min_pointwise {
  uint32_t n_tensors; /* tensor slots, first in the registry's order */
  uint32_t n_numbers; /* slots of numbers behind them */
  int optional;       /* numbers may be absent */
  fl_iter_loop f32;   /* NULL where the operator has no such row */
  fl_iter_loop i32;
  fl_iter_loop i64;
};

typedef struct pointwise_work {
  fl_iter iter; /* operand 0 is the output */
  fl_iter_loop loop;
  fl_scalar numbers[2]; /* tag FL_TAG_NONE where absent */
} pointwise_work;

/* ---- loops ------------------------------------------------------------------------------------------------------- */

/* a and b are elements of the first and second tensor, k the numbers; b is read only where there are two tensors. */
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

/* Torch's clamp: NaN stays, and where min is above max the result is max. */
static float clamp_float(float a, const fl_scalar* k) {
  if (k[0].tag != FL_TAG_NONE && a < (float)k[0].f) a = (float)k[0].f;
  if (k[1].tag != FL_TAG_NONE && a > (float)k[1].f) a = (float)k[1].f;
  return a;
}

static int64_t clamp_integer(int64_t a, const fl_scalar* k) {
  if (k[0].tag != FL_TAG_NONE && a < k[0].i) a = k[0].i;
  if (k[1].tag != FL_TAG_NONE && a > k[1].i) a = k[1].i;
  return a;
}

/* The sign of b. 0 for b = 0, where any value will do but a trap won't [FL-KERNEL-013]; -1 would overflow. */
static int64_t remainder_integer(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return 0;
  int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
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
LOOP(clamp_f32, float, 1, clamp_float(a, k))
LOOP(clamp_i32, int32_t, 1, (int32_t)clamp_integer(a, k))
LOOP(clamp_i64, int64_t, 1, clamp_integer(a, k))
LOOP(remainder_i32, int32_t, 2, (int32_t)remainder_integer(a, b))
LOOP(remainder_i64, int64_t, 2, remainder_integer(a, b))

const min_pointwise min_add = {2, 1, 0, add_f32, add_i32, add_i64};
const min_pointwise min_mul = {2, 0, 0, mul_f32, mul_i32, mul_i64};
const min_pointwise min_relu = {1, 0, 0, relu_f32, relu_i32, relu_i64};
const min_pointwise min_clamp = {1, 2, 1, clamp_f32, clamp_i32, clamp_i64};
const min_pointwise min_remainder = {2, 0, 0, NULL, remainder_i32, remainder_i64};

/* ---- plan and run ------------------------------------------------------------------------------------------------ */

static fl_status read_numbers(const min_pointwise* op, const fl_call* call, fl_scalar* numbers, fl_error* err) {
  for (uint32_t i = 0; i < op->n_numbers; i++) {
    uint32_t slot = op->n_tensors + i;
    numbers[i] = (fl_scalar){FL_TAG_NONE, 0, 0.0};
    if (op->optional && fl_arg_is_none(call, slot)) continue;
    FL_TRY(fl_arg_scalar(call, slot, call->outs[0]->dtype, &numbers[i], err));
  }
  return FL_OK;
}

static fl_status check(const fl_kernel* kernel, const fl_call* call, fl_error* err) {
  const min_pointwise* op = kernel->user;
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
  FL_TRY(min_check_row(kernel, out->dtype, err));
  fl_scalar numbers[2];
  return read_numbers(op, call, numbers, err);
}

fl_status min_pointwise_plan(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                             fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  FL_TRY(fl_check_plan(out, err));
  FL_TRY(check(kernel, call, err));
  fl_plan_set(out, 0, 0, 0);
  return FL_OK;
}

static fl_status work_pointwise(void* payload) {
  const pointwise_work* work = payload;
  fl_iter_run(&work->iter, work->loop, work->numbers);
  return FL_OK;
}

fl_status min_pointwise_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  const min_pointwise* op = kernel->user;
  FL_TRY(check(kernel, call, err));
  FL_TRY(fl_check_pointer(stream, "stream", err));
  const fl_tensor* out = call->outs[0];
  pointwise_work work;
  memset(&work, 0, sizeof work);
  work.loop = out->dtype == FL_DTYPE_F32 ? op->f32 : out->dtype == FL_DTYPE_I32 ? op->i32 : op->i64;
  FL_TRY(read_numbers(op, call, work.numbers, err));
  fl_iter_init(&work.iter, out->ndim, out->sizes);
  for (uint32_t operand = 0; operand <= op->n_tensors; operand++) {
    const fl_tensor* tensor = operand == 0 ? out : call->args[operand - 1].value.tensor;
    char* data = NULL;
    FL_TRY(min_tensor_data(stream, tensor, &data, err));
    fl_iter_operand(&work.iter, data, tensor->strides, fl_dtype_size(tensor->dtype));
  }
  return min_submit(stream, work_pointwise, &work, sizeof work, err);
}
