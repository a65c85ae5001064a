/*
 * torch_fl/sdk/args.h - checked access to the structs, calls and arguments that a host passes in.
 *
 * Every function returns FL_OK or fills err and returns the status that the interface asks for:
 * a wrong kind, a short struct, an unknown flag bit, a wrong tag: FL_INVALID_ARGUMENT [FL-LAYOUT-003, 006, 007];
 * an unknown required fl_ext node: FL_UNIMPLEMENTED [FL-LAYOUT-007]. Outputs are written on FL_OK only.
 */
#ifndef TORCH_FL_SDK_ARGS_H
#define TORCH_FL_SDK_ARGS_H

#include "torch_fl/plugin.h"
#include "torch_fl/sdk/dtype.h"
#include "torch_fl/sdk/error.h"

/* Returns the failing status from the enclosing function. */
#define FL_TRY(expression)                            \
  do {                                                \
    fl_status fl_try_status = (expression);           \
    if (fl_try_status != FL_OK) return fl_try_status; \
  } while (0)

/* First two words of a growable struct; `smallest` is FL_SIZE_V1_0_<STRUCT>, never the caller's own sizeof. */
static inline fl_status fl_check_struct(const void* given, uint32_t kind, uint32_t smallest, const char* name,
                                        fl_error* err) {
  if (given == NULL) return fl_fail(err, FL_INVALID_ARGUMENT, "%s is NULL", name);
  uint32_t head[2];
  memcpy(head, given, sizeof head);
  if (head[1] != kind) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s has kind %u, not %u", name, (unsigned)head[1], (unsigned)kind);
  }
  if (head[0] < smallest) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s has %u bytes, fewer than %u", name, (unsigned)head[0],
                   (unsigned)smallest);
  }
  return FL_OK;
}

/* A chain of which this plugin knows no node: version 1.0 defines none. */
static inline fl_status fl_check_chain(const fl_ext* next, fl_error* err) {
  for (const fl_ext* node = next; node != NULL; node = node->next) {
    if (node->struct_size < FL_SIZE_V1_0_EXT) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "an extension node has %u bytes, fewer than %u",
                     (unsigned)node->struct_size, (unsigned)FL_SIZE_V1_0_EXT);
    }
    if ((node->flags & ~(uint32_t)FL_EXT_REQUIRED) != 0) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "extension node %u has unknown flags 0x%x", (unsigned)node->kind,
                     (unsigned)node->flags);
    }
    if ((node->flags & FL_EXT_REQUIRED) != 0) {
      return fl_fail(err, FL_UNIMPLEMENTED, "required extension node %u is unknown", (unsigned)node->kind);
    }
  }
  return FL_OK;
}

static inline fl_status fl_check_flags(uint32_t flags, uint32_t known, const char* name, fl_error* err) {
  if ((flags & ~known) == 0) return FL_OK;
  return fl_fail(err, FL_INVALID_ARGUMENT, "%s has unknown flags 0x%x", name, (unsigned)(flags & ~known));
}

static inline fl_status fl_check_pointer(const void* pointer, const char* name, fl_error* err) {
  if (pointer != NULL) return FL_OK;
  return fl_fail(err, FL_INVALID_ARGUMENT, "%s is NULL", name);
}

/* Metadata of a tensor, good for plan and run: sizes and strides present and >= 0, numel their product. An unknown
 * dtype and a rank above max_ndim are FL_UNIMPLEMENTED. Addresses are not looked at. */
static inline fl_status fl_check_tensor(const fl_tensor* tensor, uint32_t max_ndim, fl_error* err) {
  FL_TRY(fl_check_struct(tensor, FL_KIND_TENSOR, FL_SIZE_V1_0_TENSOR, "tensor", err));
  FL_TRY(fl_check_flags(tensor->flags, FL_TENSOR_READONLY, "tensor", err));
  if (fl_dtype_size(tensor->dtype) == 0) {
    return fl_fail(err, FL_UNIMPLEMENTED, "dtype %u is unknown", (unsigned)tensor->dtype);
  }
  if (tensor->ndim > max_ndim) {
    return fl_fail(err, FL_UNIMPLEMENTED, "a tensor has %u dimensions, more than %u", (unsigned)tensor->ndim,
                   (unsigned)max_ndim);
  }
  if (tensor->ndim > 0) {
    FL_TRY(fl_check_pointer(tensor->sizes, "tensor sizes", err));
    FL_TRY(fl_check_pointer(tensor->strides, "tensor strides", err));
  }
  int64_t numel = 1;
  int empty = 0;
  for (uint32_t d = 0; d < tensor->ndim; d++) {
    if (tensor->sizes[d] < 0 || tensor->strides[d] < 0) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "dimension %u has a negative size or stride", (unsigned)d);
    }
    if (tensor->sizes[d] == 0) empty = 1;
  }
  for (uint32_t d = 0; d < tensor->ndim && !empty; d++) {
    if (__builtin_mul_overflow(numel, tensor->sizes[d], &numel)) {
      return fl_fail(err, FL_INVALID_ARGUMENT, "the sizes of a tensor overflow");
    }
  }
  if (empty) numel = 0;
  if (tensor->numel != numel) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "numel is %lld, the sizes make %lld", (long long)tensor->numel,
                   (long long)numel);
  }
  return FL_OK;
}

/* The call block itself: struct, chain, number of slots and outputs, and that their arrays are there. Tensors are
 * checked where they are fetched. First line of every plan and run; checks err, too. */
static inline fl_status fl_check_call(const fl_call* call, uint32_t n_args, uint32_t n_outs, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_struct(call, FL_KIND_CALL, FL_SIZE_V1_0_CALL, "call", err));
  FL_TRY(fl_check_chain(call->next, err));
  if (call->n_args != n_args) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "the call has %u arguments, not %u", (unsigned)call->n_args,
                   (unsigned)n_args);
  }
  if (call->n_outs != n_outs) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "the call has %u outputs, not %u", (unsigned)call->n_outs,
                   (unsigned)n_outs);
  }
  if (n_args > 0) FL_TRY(fl_check_pointer(call->args, "call args", err));
  if (n_outs > 0) FL_TRY(fl_check_pointer(call->outs, "call outs", err));
  for (uint32_t slot = 0; slot < n_args; slot++) {
    FL_TRY(fl_check_flags(call->args[slot].flags, 0, "argument", err));
  }
  for (uint32_t slot = 0; slot < n_outs; slot++) {
    FL_TRY(fl_check_pointer(call->outs[slot], "an output", err));
  }
  return FL_OK;
}

/* The plan struct that a host passes to plan; write with fl_plan_set. */
static inline fl_status fl_check_plan(const fl_plan* plan, fl_error* err) {
  return fl_check_struct(plan, FL_KIND_PLAN, FL_SIZE_V1_0_PLAN, "plan", err);
}

/* Workspace in bytes, its alignment (power of two or 0), random counters used. */
static inline void fl_plan_set(fl_plan* plan, uint64_t workspace_bytes, uint64_t workspace_align,
                               uint64_t rng_increment) {
  plan->workspace_bytes = workspace_bytes;
  plan->workspace_align = workspace_align;
  plan->rng_increment = rng_increment;
  plan->token = 0;
}

static inline fl_status fl_arg_wrong_tag(const fl_call* call, uint32_t slot, const char* wanted, fl_error* err) {
  return fl_fail(err, FL_INVALID_ARGUMENT, "argument %u has tag %u, not %s", (unsigned)slot,
                 (unsigned)call->args[slot].tag, wanted);
}

static inline int fl_arg_is_none(const fl_call* call, uint32_t slot) { return call->args[slot].tag == FL_TAG_NONE; }

static inline int fl_arg_is_tensor(const fl_call* call, uint32_t slot) { return call->args[slot].tag == FL_TAG_TENSOR; }

/* A tensor, never NULL. The tensor itself is checked by fl_check_tensor. */
static inline fl_status fl_arg_tensor(const fl_call* call, uint32_t slot, const fl_tensor** out, fl_error* err) {
  if (call->args[slot].tag != FL_TAG_TENSOR) return fl_arg_wrong_tag(call, slot, "TENSOR", err);
  FL_TRY(fl_check_pointer(call->args[slot].value.tensor, "a tensor argument", err));
  *out = call->args[slot].value.tensor;
  return FL_OK;
}

/* A tensor, or NULL where the slot says NONE. */
static inline fl_status fl_arg_tensor_or_none(const fl_call* call, uint32_t slot, const fl_tensor** out,
                                              fl_error* err) {
  if (!fl_arg_is_none(call, slot)) return fl_arg_tensor(call, slot, out, err);
  *out = NULL;
  return FL_OK;
}

/* `count` pointers, single ones may be NULL (absent). */
static inline fl_status fl_arg_tensor_list(const fl_call* call, uint32_t slot, const fl_tensor* const** out,
                                           uint32_t* count, fl_error* err) {
  if (call->args[slot].tag != FL_TAG_TENSOR_LIST) return fl_arg_wrong_tag(call, slot, "TENSOR_LIST", err);
  if (call->args[slot].count > 0) FL_TRY(fl_check_pointer(call->args[slot].value.tensors, "a tensor list", err));
  *out = call->args[slot].value.tensors;
  *count = call->args[slot].count;
  return FL_OK;
}

static inline fl_status fl_arg_int(const fl_call* call, uint32_t slot, int64_t* out, fl_error* err) {
  if (call->args[slot].tag != FL_TAG_INT) return fl_arg_wrong_tag(call, slot, "INT", err);
  *out = call->args[slot].value.i;
  return FL_OK;
}

static inline fl_status fl_arg_bool(const fl_call* call, uint32_t slot, int32_t* out, fl_error* err) {
  if (call->args[slot].tag != FL_TAG_BOOL) return fl_arg_wrong_tag(call, slot, "BOOL", err);
  *out = call->args[slot].value.i != 0;
  return FL_OK;
}

static inline fl_status fl_arg_float(const fl_call* call, uint32_t slot, double* out, fl_error* err) {
  if (call->args[slot].tag != FL_TAG_FLOAT) return fl_arg_wrong_tag(call, slot, "FLOAT", err);
  *out = call->args[slot].value.f;
  return FL_OK;
}

static inline fl_status fl_arg_int_list(const fl_call* call, uint32_t slot, const int64_t** out, uint32_t* count,
                                        fl_error* err) {
  if (call->args[slot].tag != FL_TAG_INT_LIST) return fl_arg_wrong_tag(call, slot, "INT_LIST", err);
  if (call->args[slot].count > 0) FL_TRY(fl_check_pointer(call->args[slot].value.ints, "an int list", err));
  *out = call->args[slot].value.ints;
  *count = call->args[slot].count;
  return FL_OK;
}

/* `count` bytes without the NUL that follows them. */
static inline fl_status fl_arg_string(const fl_call* call, uint32_t slot, const char** out, uint32_t* count,
                                      fl_error* err) {
  if (call->args[slot].tag != FL_TAG_STRING) return fl_arg_wrong_tag(call, slot, "STRING", err);
  FL_TRY(fl_check_pointer(call->args[slot].value.string, "a string", err));
  *out = call->args[slot].value.string;
  *count = call->args[slot].count;
  return FL_OK;
}

/* 1 when the string argument of `count` bytes is exactly `word`. */
static inline int fl_string_is(const char* string, uint32_t count, const char* word) {
  return strlen(word) == count && memcmp(string, word, count) == 0;
}

static inline fl_status fl_arg_rng(const fl_call* call, uint32_t slot, fl_rng* out, fl_error* err) {
  if (call->args[slot].tag != FL_TAG_RNG) return fl_arg_wrong_tag(call, slot, "RNG", err);
  *out = call->args[slot].value.rng;
  return FL_OK;
}

/* A number with the tag it came with: BOOL, INT and UINT fill i (UINT as its bits), FLOAT fills f. The other member
 * is 0, so that no integer takes a way through double. */
typedef struct fl_scalar {
  uint16_t tag;
  int64_t i;
  double f;
} fl_scalar;

/* A number for elements of `dtype`: BOOL for bool, INT or UINT for integers, FLOAT for floating types. */
static inline fl_status fl_arg_scalar(const fl_call* call, uint32_t slot, uint32_t dtype, fl_scalar* out,
                                      fl_error* err) {
  const fl_arg* arg = &call->args[slot];
  fl_scalar value = {arg->tag, 0, 0.0};
  if (fl_dtype_is_float(dtype)) {
    if (arg->tag != FL_TAG_FLOAT) return fl_arg_wrong_tag(call, slot, "FLOAT", err);
    value.f = arg->value.f;
  } else if (fl_dtype_is_integer(dtype)) {
    if (arg->tag != FL_TAG_INT && arg->tag != FL_TAG_UINT) return fl_arg_wrong_tag(call, slot, "INT or UINT", err);
    value.i = arg->value.i;
  } else if (dtype == FL_DTYPE_BOOL) {
    if (arg->tag != FL_TAG_BOOL) return fl_arg_wrong_tag(call, slot, "BOOL", err);
    value.i = arg->value.i != 0;
  } else {
    return fl_fail(err, FL_UNIMPLEMENTED, "no number of dtype %s is taken", fl_dtype_name(dtype));
  }
  *out = value;
  return FL_OK;
}

#endif /* TORCH_FL_SDK_ARGS_H */
