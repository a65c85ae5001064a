/*
 * kernel.c - the check of a call against a kernel's signature, rows and rank, and the plan of simple kernels.
 */
#include "kernel.h"

#include <string.h>

const fl_kernel_row ref_rows_all[10] = {REF_ALL(REF_PLAIN_ROW)};
const fl_kernel_row ref_rows_numbers[9] = {REF_NUMBERS(REF_PLAIN_ROW)};
const fl_kernel_row ref_rows_floats[4] = {REF_FLOATS(REF_PLAIN_ROW)};
const fl_kernel_row ref_rows_integers_and_bool[6] = {REF_INTEGERS(REF_PLAIN_ROW) REF_PLAIN_ROW(FL_DTYPE_BOOL)};

const fl_kernel_row ref_rows_sums[4] = {
    REF_ROW(FL_DTYPE_F32, FL_DTYPE_F32),
    REF_ROW(FL_DTYPE_F64, FL_DTYPE_F64),
    REF_ROW(FL_DTYPE_F32, FL_DTYPE_F16),
    REF_ROW(FL_DTYPE_F32, FL_DTYPE_BF16),
};

const fl_kernel_row ref_rows_statistics[4] = {
    REF_ROW(FL_DTYPE_F32, FL_DTYPE_F32, FL_DTYPE_F32),
    REF_ROW(FL_DTYPE_F64, FL_DTYPE_F64, FL_DTYPE_F64),
    REF_ROW(FL_DTYPE_F32, FL_DTYPE_F16, FL_DTYPE_F32),
    REF_ROW(FL_DTYPE_F32, FL_DTYPE_BF16, FL_DTYPE_F32),
};

/* ---- Types and tags -------------------------------------------------------------------------- */

/* Binds a tensor's dtype to its slot's type. */
static fl_status bind_tensor(const fl_kernel* kernel, ref_slot slot, const fl_tensor* tensor, ref_types* types,
                             fl_error* err) {
  FL_TRY(fl_check_tensor(tensor, kernel->max_ndim, err));
  uint32_t expected = slot.type >= 64 ? (uint32_t)(slot.type - 64) : types->dtype[slot.type];
  if (expected == FL_DTYPE_NONE) {
    types->dtype[slot.type] = tensor->dtype;
    return FL_OK;
  }
  if (tensor->dtype != expected) {
    return fl_fail(err, FL_UNIMPLEMENTED, "%s: dtype %s where %s is expected", kernel->op,
                   fl_dtype_name(tensor->dtype), fl_dtype_name(expected));
  }
  return FL_OK;
}

static fl_status bind_list(const fl_kernel* kernel, ref_slot slot, const fl_arg* arg, ref_types* types,
                           fl_error* err) {
  if (arg->count > 0 && arg->value.tensors == NULL) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: tensor list is NULL", kernel->op);
  }
  for (uint32_t i = 0; i < arg->count; ++i) {
    FL_TRY(bind_tensor(kernel, slot, arg->value.tensors[i], types, err));
  }
  return FL_OK;
}

static int tag_fits_scalar(uint32_t tag, uint32_t dtype) {
  if (fl_dtype_is_float(dtype)) {
    return tag == FL_TAG_FLOAT;
  }
  if (dtype == FL_DTYPE_BOOL) {
    return tag == FL_TAG_BOOL;
  }
  return tag == FL_TAG_INT || tag == FL_TAG_UINT;
}

/* `dtype` is that of the slot's type, for the slots that carry a number. */
static int tag_fits(ref_slot slot, uint32_t tag, uint32_t dtype) {
  switch (slot.kind) {
    case REF_TENSOR:
      return tag == FL_TAG_TENSOR;
    case REF_TENSOR_OR_SCALAR:
      return tag == FL_TAG_TENSOR || tag_fits_scalar(tag, dtype);
    case REF_TENSOR_OR_NONE:
      return tag == FL_TAG_TENSOR || tag == FL_TAG_NONE;
    case REF_TENSOR_LIST:
      return tag == FL_TAG_TENSOR_LIST;
    case REF_SCALAR:
      return tag_fits_scalar(tag, dtype);
    case REF_SCALAR_OR_NONE:
      return tag == FL_TAG_NONE || tag_fits_scalar(tag, dtype);
    case REF_BOOL:
      return tag == FL_TAG_BOOL;
    case REF_INT:
      return tag == FL_TAG_INT;
    case REF_INT_OR_NONE:
      return tag == FL_TAG_INT || tag == FL_TAG_NONE;
    case REF_FLOAT:
      return tag == FL_TAG_FLOAT;
    case REF_INT_LIST:
      return tag == FL_TAG_INT_LIST;
    case REF_STRING:
      return tag == FL_TAG_STRING;
    case REF_RNG:
      return tag == FL_TAG_RNG;
    default:
      return 0;
  }
}

static uint32_t slots_used(const ref_slot* slots, uint32_t most) {
  uint32_t count = 0;
  while (count < most && slots[count].kind != REF_END) {
    ++count;
  }
  return count;
}

static int row_exists(const fl_kernel* kernel, const ref_types* types) {
  for (uint32_t r = 0; r < kernel->n_rows; ++r) {
    uint32_t same = 0;
    for (uint32_t v = 0; v < kernel->n_types; ++v) {
      same += kernel->rows[r].dtypes[v] == types->dtype[v];
    }
    if (same == kernel->n_types) {
      return 1;
    }
  }
  return 0;
}

static int all_bound(const fl_kernel* kernel, const ref_types* types) {
  for (uint32_t v = 0; v < kernel->n_types; ++v) {
    if (types->dtype[v] == FL_DTYPE_NONE) {
      return 0;
    }
  }
  return 1;
}

static fl_status bind_tensors(const fl_kernel* kernel, const ref_signature* signature, const fl_call* call,
                              ref_types* types, fl_error* err) {
  for (uint32_t i = 0; i < call->n_outs; ++i) {
    FL_TRY(bind_tensor(kernel, signature->outs[i], call->outs[i], types, err));
  }
  for (uint32_t i = 0; i < call->n_args; ++i) {
    const fl_arg* arg = &call->args[i];
    if (arg->tag == FL_TAG_TENSOR && tag_fits(signature->args[i], FL_TAG_TENSOR, FL_DTYPE_NONE)) {
      FL_TRY(bind_tensor(kernel, signature->args[i], arg->value.tensor, types, err));
    }
    if (arg->tag == FL_TAG_TENSOR_LIST && signature->args[i].kind == REF_TENSOR_LIST) {
      FL_TRY(bind_list(kernel, signature->args[i], arg, types, err));
    }
  }
  return FL_OK;
}

fl_status ref_check(const fl_kernel* kernel, const fl_call* call, ref_types* types, fl_error* err) {
  if (!fl_error_usable(err)) {
    return FL_INVALID_ARGUMENT;
  }
  FL_TRY(fl_check_struct(kernel, FL_KIND_KERNEL, FL_SIZE_V1_0_KERNEL, "kernel", err));
  const ref_signature* signature = kernel->user;
  uint32_t n_args = slots_used(signature->args, REF_MAX_ARGS);
  uint32_t n_outs = slots_used(signature->outs, REF_MAX_OUTS);
  FL_TRY(fl_check_call(call, n_args, n_outs, err));
  memset(types, 0, sizeof *types);
  FL_TRY(bind_tensors(kernel, signature, call, types, err));
  if (all_bound(kernel, types) && !row_exists(kernel, types)) {
    return fl_fail(err, FL_UNIMPLEMENTED, "%s: no row for dtypes %s, %s", kernel->op,
                   fl_dtype_name(types->dtype[0]), fl_dtype_name(types->dtype[1]));
  }
  for (uint32_t i = 0; i < n_args; ++i) {
    ref_slot slot = signature->args[i];
    uint32_t dtype = slot.type >= 64 ? (uint32_t)(slot.type - 64) : types->dtype[slot.type];
    if (call->args[i].tag == FL_TAG_INT_LIST && call->args[i].count > 0) {
      FL_TRY(fl_check_pointer(call->args[i].value.ints, "an int list", err));
    }
    if (!tag_fits(slot, call->args[i].tag, dtype)) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "%s: argument %u has tag %u", kernel->op, i,
                     (unsigned)call->args[i].tag);
    }
  }
  if (!all_bound(kernel, types)) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: a dtype is left open", kernel->op);
  }
  return FL_OK;
}

static int sizes_equal(const fl_tensor* a, const fl_tensor* b) {
  if (a->ndim != b->ndim) {
    return 0;
  }
  for (uint32_t d = 0; d < a->ndim; ++d) {
    if (a->sizes[d] != b->sizes[d]) {
      return 0;
    }
  }
  return 1;
}

fl_status ref_check_shapes(const fl_kernel* kernel, const fl_call* call, fl_error* err) {
  for (uint32_t i = 0; i < call->n_args; ++i) {
    if (call->args[i].tag == FL_TAG_TENSOR && !sizes_equal(call->args[i].value.tensor, call->outs[0])) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "%s: argument %u has not the shape of the output", kernel->op, i);
    }
  }
  return FL_OK;
}

/* ---- Plans ----------------------------------------------------------------------------------- */

fl_status ref_check_plan(fl_device device, const fl_plan* out, fl_error* err) {
  if (!fl_error_usable(err)) {
    return FL_INVALID_ARGUMENT;
  }
  FL_TRY(fl_check_pointer(device, "device", err));
  return fl_check_plan(out, err);
}

fl_status ref_plan_simple(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                          fl_error* err) {
  ref_types types;
  FL_TRY(ref_check_plan(device, out, err));
  FL_TRY(ref_check(kernel, call, &types, err));
  fl_plan_set(out, 0, 0, 0);
  return FL_OK;
}

static fl_status check_op(const fl_kernel* kernel, const fl_call* call, fl_error* err) {
  ref_types types;
  FL_TRY(ref_check(kernel, call, &types, err));
  const ref_op* op = kernel->user;
  return op->check(kernel, call, err);
}

fl_status ref_plan_op(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out, fl_error* err) {
  FL_TRY(ref_check_plan(device, out, err));
  FL_TRY(check_op(kernel, call, err));
  fl_plan_set(out, 0, 0, 0);
  return FL_OK;
}

fl_status ref_begin_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  FL_TRY(check_op(kernel, call, err));
  return fl_check_pointer(stream, "stream", err);
}

int ref_is_unwanted(const fl_tensor* out) {
  return out->ndim == 1 && out->sizes[0] == 0;
}

int ref_string_is(const fl_arg* arg, const char* text) {
  return arg->value.string != NULL && fl_string_is(arg->value.string, arg->count, text);
}
