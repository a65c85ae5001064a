/*
 * wrong_kernels.h - the reference vendor whose kernels check, plan and queue as ever, but write something else.
 *
 * A control defines control_element() and includes nothing more; its table comes from control_kernels, which
 * takes the place of ref_kernels in plugin.c.
 */
#ifndef FL_TWINS_WRONG_KERNELS_H
#define FL_TWINS_WRONG_KERNELS_H

#include <stdlib.h>

#include "core.h"
#include "kernels/pointwise.h"

/* Writes element `index` (row-major) of an output of `dtype` to `to`. input: the call's first tensor, or NULL. */
static void control_element(char* to, uint32_t dtype, uint64_t index, const ref_view* input);

typedef struct {
  ref_view outs[REF_MAX_OUTS];
  uint32_t n_outs;
  ref_view input;
  int has_input;
} control_work;

typedef struct {
  const control_work* work;
  uint32_t dtype;
  uint64_t* index;
} control_place;

static void control_loop(char* const* data, const int64_t* step, int64_t n, const void* context) {
  const control_place* place = context;
  const ref_view* input = place->work->has_input && place->work->input.numel > 0 ? &place->work->input : NULL;
  for (int64_t i = 0; i < n; i++) {
    control_element(data[0] + i * step[0], place->dtype, *place->index, input);
    *place->index += 1;
  }
}

static void control_execute(const void* payload) {
  const control_work* work = payload;
  for (uint32_t i = 0; i < work->n_outs; i++) {
    const ref_view* out = &work->outs[i];
    uint64_t index = 0;
    control_place place = {work, out->dtype, &index};
    fl_iter iter;
    fl_iter_init(&iter, out->ndim, out->sizes);
    fl_iter_operand(&iter, out->data, out->strides, fl_dtype_size(out->dtype));
    fl_iter_run(&iter, control_loop, &place);
  }
}

static const fl_tensor* first_tensor(const fl_call* call) {
  for (uint32_t i = 0; i < call->n_args; i++) {
    if (call->args[i].tag == FL_TAG_TENSOR) return call->args[i].value.tensor;
    if (call->args[i].tag == FL_TAG_TENSOR_LIST && call->args[i].count > 0) return call->args[i].value.tensors[0];
  }
  return NULL;
}

static fl_status control_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  ref_types types;
  control_work work;
  FL_TRY(ref_check(kernel, call, &types, err));
  memset(&work, 0, sizeof work);
  work.n_outs = call->n_outs;
  for (uint32_t i = 0; i < call->n_outs; i++) FL_TRY(ref_view_of(stream, call->outs[i], &work.outs[i], err));
  const fl_tensor* input = first_tensor(call);
  work.has_input = input != NULL;
  if (input != NULL) FL_TRY(ref_view_of(stream, input, &work.input, err));
  return ref_submit(stream, control_execute, &work, sizeof work, err);
}

static pthread_once_t control_once = PTHREAD_ONCE_INIT;
static fl_kernel_table control_table;

static void make_control_table(void) {
  const fl_kernel_table* claimed = NULL;
  if (ref_kernels((fl_device)&control_table, &claimed, NULL) != FL_OK) return;
  fl_kernel* entries = malloc(claimed->count * sizeof *entries);
  if (entries == NULL) return;
  memcpy(entries, claimed->entries, claimed->count * sizeof *entries);
  for (uint32_t i = 0; i < claimed->count; i++) entries[i].run = control_run;
  control_table = *claimed;
  control_table.entries = entries;
}

fl_status control_kernels(fl_device device, const fl_kernel_table** out, fl_error* err) {
  const fl_kernel_table* claimed = NULL;
  FL_TRY(ref_kernels(device, &claimed, err));
  FL_TRY(fl_check_pointer(out, "out", err));
  pthread_once(&control_once, make_control_table);
  *out = &control_table;
  return FL_OK;
}

#endif /* FL_TWINS_WRONG_KERNELS_H */
