/*
 * The honest fake with three kernels that end or stop their process: aten::abs reads NULL, aten::relu never
 * returns, aten::sign leaves through exit(). It also talks a lot, to show that printing disturbs nobody.
 */
#include <stdio.h>
#include <unistd.h>

#include "torch_fl/plugin.h"

static fl_status crash_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err);
static fl_status hang_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err);
static fl_status exit_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err);

#define ILL_KERNEL(NAME, RUN)                                                                                         \
  {.struct_size = sizeof(fl_kernel), .kind = FL_KIND_KERNEL, .op = NAME, .variant = "generic", .revision = 1,         \
   .n_types = 1, .rows = rows, .n_rows = 2, .row_stride = sizeof(fl_kernel_row), .layouts = FL_LAYOUT_STRIDED,        \
   .max_ndim = 2, .flags = FL_KERNEL_DETERMINISTIC, .plan = neg_plan, .run = RUN}
#define KERNELS                                                                                                       \
  NEG_KERNEL, ILL_KERNEL("aten::abs", crash_run), ILL_KERNEL("aten::relu", hang_run), ILL_KERNEL("aten::sign", exit_run)

#include "fake.h"

static fl_status crash_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  (void)kernel, (void)stream, (void)call, (void)err;
  volatile int* nowhere = NULL;
  return *nowhere;
}

static fl_status hang_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  (void)kernel, (void)stream, (void)call, (void)err;
  for (;;) pause();
}

static fl_status exit_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  (void)kernel, (void)stream, (void)call, (void)err;
  exit(7);
}

EXPORT fl_status fl_plugin_query_v1(const fl_host* host, const fl_plugin** out, fl_error* err) {
  (void)host, (void)err;
  printf("ill plugin loaded\n");
  fprintf(stderr, "ill plugin says so again\n");
  *out = &root;
  return FL_OK;
}
