/*
 * kernel.h - what all reference kernels share: signatures and the check of a call against one, row
 * tables, plans without workspace, and the reading of numbers from arguments.
 *
 * A kernel's `user` pointer names a struct whose first member is a ref_signature. plan and run both
 * begin with ref_check, so a call that plan admits is never refused as unimplemented by run [FL-KERNEL-007].
 */
#ifndef REF_KERNELS_KERNEL_H
#define REF_KERNELS_KERNEL_H

#include <stdint.h>

#include "reference.h"

#define REF_MAX_ARGS 10
#define REF_MAX_OUTS 5
#define REF_COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))

/* What a slot may carry. */
#define REF_END 0
#define REF_TENSOR 1
#define REF_TENSOR_OR_SCALAR 2 /* a number stands for a tensor of the slot's type */
#define REF_TENSOR_OR_NONE 3
#define REF_TENSOR_LIST 4
#define REF_SCALAR 5 /* BOOL, INT or UINT, or FLOAT, after the kind of the slot's type */
#define REF_SCALAR_OR_NONE 6
#define REF_BOOL 7
#define REF_INT 8
#define REF_FLOAT 9
#define REF_INT_LIST 10
#define REF_STRING 11
#define REF_RNG 12
#define REF_INT_OR_NONE 13

/* A slot's type: the number of a type variable (0 ... 7), or a dtype that never varies. */
#define REF_FIXED(dtype) ((uint8_t)(64 + (dtype)))

typedef struct ref_slot {
  uint8_t kind; /* REF_TENSOR ... */
  uint8_t type; /* type variable or REF_FIXED; for REF_BOOL and after unused */
} ref_slot;

typedef struct ref_signature {
  ref_slot args[REF_MAX_ARGS]; /* in the registry's order, then REF_END */
  ref_slot outs[REF_MAX_OUTS];
} ref_signature;

/* dtypes bound to the type variables of a call. */
typedef struct ref_types {
  uint32_t dtype[FL_MAX_TYPE_VARIABLES];
} ref_types;

/*
 * Checks the call's structs, the tags and the dtypes against the kernel's signature, rows and max_ndim.
 * Wrong struct, tag or flag: FL_INVALID_ARGUMENT. A dtype combination without a row, or a tensor of more
 * than max_ndim dimensions: FL_UNIMPLEMENTED. On FL_OK `types` holds the bound dtypes.
 */
fl_status ref_check(const fl_kernel* kernel, const fl_call* call, ref_types* types, fl_error* err);

/* Every tensor argument has the shape of output 0, else FL_INVALID_ARGUMENT. After ref_check. */
fl_status ref_check_shapes(const fl_kernel* kernel, const fl_call* call, fl_error* err);

/* Checks what plan gets beside the call. */
fl_status ref_check_plan(fl_device device, const fl_plan* out, fl_error* err);

/* plan of kernels that need no workspace and whose user pointer is a bare ref_signature. */
fl_status ref_plan_simple(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                          fl_error* err);

/* For kernels that have more to say about shapes and values. */
typedef struct ref_op {
  ref_signature signature;
  fl_status (*check)(const fl_kernel* kernel, const fl_call* call, fl_error* err);
} ref_op;

/* plan without workspace of kernels whose user pointer is a ref_op: ref_check, then its check. */
fl_status ref_plan_op(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out, fl_error* err);

/* The same checks at the beginning of run. */
fl_status ref_begin_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err);

/* 1 where nobody wants this output: it has the sizes [0]. */
int ref_is_unwanted(const fl_tensor* out);

/* 1 when the string argument equals `text`. */
int ref_string_is(const fl_arg* arg, const char* text);

/* Row tables. ACC: the accumulator's dtype or FL_DTYPE_NONE. */
#define REF_ROW(ACC, ...) \
  { sizeof(fl_kernel_row), FL_KIND_KERNEL_ROW, {__VA_ARGS__}, ACC, 0, 0, 0 }

/* X-macros over the dtype classes of the registry: X(dtype). */
#define REF_FLOATS(X) X(FL_DTYPE_F32) X(FL_DTYPE_F64) X(FL_DTYPE_F16) X(FL_DTYPE_BF16)
#define REF_INTEGERS(X) X(FL_DTYPE_I64) X(FL_DTYPE_I32) X(FL_DTYPE_I16) X(FL_DTYPE_I8) X(FL_DTYPE_U8)
#define REF_NUMBERS(X) REF_FLOATS(X) REF_INTEGERS(X)
#define REF_ALL(X) REF_NUMBERS(X) X(FL_DTYPE_BOOL)

/* One type variable, nothing accumulated: for pointwise and movement kernels. */
#define REF_PLAIN_ROW(DTYPE) REF_ROW(FL_DTYPE_NONE, DTYPE),
extern const fl_kernel_row ref_rows_all[10];
extern const fl_kernel_row ref_rows_numbers[9];
extern const fl_kernel_row ref_rows_floats[4];
extern const fl_kernel_row ref_rows_integers_and_bool[6];

/* One floating type variable, halves accumulated in f32. */
extern const fl_kernel_row ref_rows_sums[4];

/* The type of the data and that of statistics over them, which are those of halves in f32. */
extern const fl_kernel_row ref_rows_statistics[4];

#define REF_ANY_LAYOUT                                                                                    \
  (FL_LAYOUT_STRIDED | FL_LAYOUT_CONTIGUOUS | FL_LAYOUT_CHANNELS_LAST_2D | FL_LAYOUT_CHANNELS_LAST_3D |   \
   FL_LAYOUT_PERMUTED)
#define REF_BASE_FLAGS (FL_KERNEL_DETERMINISTIC | FL_KERNEL_PLAN_PURE)

/*
 * One table entry, variant "generic", revision 1, any layout.
 * N_TYPES type variables, ROWS an array, TIER FL_TIER_*, FLAGS beside REF_BASE_FLAGS.
 */
#define REF_KERNEL(OP, N_TYPES, ROWS, TIER, FLAGS, USER, PLAN, RUN)                                        \
  {                                                                                                       \
    .struct_size = sizeof(fl_kernel), .kind = FL_KIND_KERNEL, .op = "aten::" OP, .variant = "generic",     \
    .revision = 1, .n_types = N_TYPES, .rows = ROWS, .n_rows = REF_COUNT(ROWS),                            \
    .row_stride = sizeof(fl_kernel_row), .layouts = REF_ANY_LAYOUT, .max_ndim = REF_MAX_NDIM,              \
    .flags = REF_BASE_FLAGS | (FLAGS), .tier = TIER, .user = USER, .plan = PLAN, .run = RUN,               \
  }

#endif /* REF_KERNELS_KERNEL_H */
