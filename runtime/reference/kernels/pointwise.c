/*
 * pointwise.c - plan and run of every pointwise kernel.
 */
#include "pointwise.h"

/* Operand 0 is the output, then the tensor slots in order. Numbers in T|s slots are operands of stride 0. */
typedef struct pointwise_work {
  fl_iter iter;
  fl_iter_loop loop;
  fl_scalar numbers[2];                                   /* of scalar and float slots: k0, k1 */
  uint32_t is_number;                                     /* bit n: operand n points at constants[n] */
  char constants[FL_ITER_MAX_OPERANDS][sizeof(int64_t)];  /* one element each */
} pointwise_work;

static void pointwise_execute(const void* payload) {
  const pointwise_work* work = payload;
  fl_iter iter = work->iter;
  char constants[FL_ITER_MAX_OPERANDS][sizeof(int64_t)];
  memcpy(constants, work->constants, sizeof constants);
  for (uint32_t n = 0; n < iter.n_operands; n++) {
    if (work->is_number & (1u << n)) {
      iter.data[n] = constants[n];
    }
  }
  fl_iter_sort(&iter);
  fl_iter_coalesce(&iter);
  fl_iter_run(&iter, work->loop, work->numbers);
}

static fl_status choose_loop(const fl_kernel* kernel, const fl_call* call, const ref_types* types,
                             fl_iter_loop* loop, fl_error* err) {
  const ref_pointwise_op* op = kernel->user;
  if (op->choose == NULL) {
    *loop = op->loops[types->dtype[0]];
    return FL_OK;
  }
  *loop = op->choose(call, types);
  if (*loop == NULL) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: an argument has a value without meaning", kernel->op);
  }
  return FL_OK;
}

fl_status ref_pointwise_plan(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                             fl_error* err) {
  ref_types types;
  fl_iter_loop loop;
  FL_TRY(ref_check_plan(device, out, err));
  FL_TRY(ref_check(kernel, call, &types, err));
  FL_TRY(ref_check_shapes(kernel, call, err));
  FL_TRY(choose_loop(kernel, call, &types, &loop, err));
  fl_plan_set(out, 0, 0, 0);
  return FL_OK;
}

static fl_status add_tensor(fl_stream stream, const fl_tensor* tensor, fl_iter* iter, fl_error* err) {
  ref_view view;
  FL_TRY(ref_view_of(stream, tensor, &view, err));
  fl_iter_operand(iter, view.data, view.strides, fl_dtype_size(view.dtype));
  return FL_OK;
}

/* A number in place of a tensor: one element of `dtype`, rounded once. */
static void add_number(pointwise_work* work, uint32_t dtype, fl_scalar number) {
  static const int64_t no_strides[FL_ITER_MAX_NDIM] = {0};
  uint32_t operand = work->iter.n_operands;
  ref_store_number(work->constants[operand], dtype, number);
  work->is_number |= 1u << operand;
  fl_iter_operand(&work->iter, NULL, no_strides, fl_dtype_size(dtype));
}

fl_status ref_pointwise_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  ref_types types;
  FL_TRY(ref_check(kernel, call, &types, err));
  FL_TRY(ref_check_shapes(kernel, call, err));
  FL_TRY(fl_check_pointer(stream, "stream", err));
  pointwise_work work;
  memset(&work, 0, sizeof work);
  FL_TRY(choose_loop(kernel, call, &types, &work.loop, err));
  fl_iter_init(&work.iter, call->outs[0]->ndim, call->outs[0]->sizes);
  FL_TRY(add_tensor(stream, call->outs[0], &work.iter, err));
  const ref_signature* signature = kernel->user;
  uint32_t n_numbers = 0;
  for (uint32_t i = 0; i < call->n_args; i++) {
    const fl_arg* arg = &call->args[i];
    uint32_t kind = signature->args[i].kind;
    if (arg->tag == FL_TAG_TENSOR) {
      FL_TRY(add_tensor(stream, arg->value.tensor, &work.iter, err));
    }
    if (kind == REF_TENSOR_OR_SCALAR && arg->tag != FL_TAG_TENSOR) {
      add_number(&work, types.dtype[0], ref_number(arg));
    }
    if (kind == REF_SCALAR || kind == REF_SCALAR_OR_NONE || kind == REF_FLOAT) {
      work.numbers[n_numbers] = ref_number(arg);
      n_numbers += 1;
    }
  }
  return ref_submit(stream, pointwise_execute, &work, sizeof work, err);
}

/* ---- Numbers --------------------------------------------------------------------------------- */

fl_scalar ref_number(const fl_arg* arg) {
  fl_scalar number = {arg->tag, 0, 0.0};
  if (arg->tag == FL_TAG_FLOAT) {
    number.f = arg->value.f;
  }
  if (arg->tag == FL_TAG_BOOL || arg->tag == FL_TAG_INT || arg->tag == FL_TAG_UINT) {
    number.i = arg->value.i;
  }
  return number;
}

void ref_store_number(char* to, uint32_t dtype, fl_scalar number) {
  switch (dtype) {
    case FL_DTYPE_BOOL:
      ref_store_bool(to, number.i);
      break;
    case FL_DTYPE_U8:
      ref_store_u8(to, number.i);
      break;
    case FL_DTYPE_I8:
      ref_store_i8(to, number.i);
      break;
    case FL_DTYPE_I16:
      ref_store_i16(to, number.i);
      break;
    case FL_DTYPE_I32:
      ref_store_i32(to, number.i);
      break;
    case FL_DTYPE_I64:
      ref_store_i64(to, number.i);
      break;
    case FL_DTYPE_F16:
      ref_store_half_bits(to, fl_f64_to_f16(number.f));
      break;
    case FL_DTYPE_BF16:
      ref_store_half_bits(to, fl_f64_to_bf16(number.f));
      break;
    case FL_DTYPE_F32:
      ref_store_f32(to, (float)number.f);
      break;
    default:
      ref_store_f64(to, number.f);
      break;
  }
}
