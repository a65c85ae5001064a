/*
 * The honest fake with kernels that meddle with their process: one writes what looks like no message, one what looks
 * like an answer, into every pipe it finds; one closes all descriptors; one leaves a child behind; one prints 1 MiB of
 * bytes that no terminal should get.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "torch_fl/plugin.h"

#define MEDDLE(NAME)                                                                                                  \
  static fl_status NAME(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err)
MEDDLE(noise_run);
MEDDLE(answer_run);
MEDDLE(close_run);
MEDDLE(child_run);
MEDDLE(print_run);

#define MEDDLING_KERNEL(NAME, RUN)                                                                                    \
  {.struct_size = sizeof(fl_kernel), .kind = FL_KIND_KERNEL, .op = NAME, .variant = "generic", .revision = 1,         \
   .n_types = 1, .rows = rows, .n_rows = 2, .row_stride = sizeof(fl_kernel_row), .layouts = FL_LAYOUT_STRIDED,        \
   .max_ndim = 2, .flags = FL_KERNEL_DETERMINISTIC, .plan = neg_plan, .run = RUN}
#define KERNELS                                                                                                       \
  NEG_KERNEL, MEDDLING_KERNEL("test::noise", noise_run), MEDDLING_KERNEL("test::answer", answer_run),                 \
      MEDDLING_KERNEL("test::close", close_run), MEDDLING_KERNEL("test::child", child_run),                           \
      MEDDLING_KERNEL("test::print", print_run)

#include "fake.h"

static void write_to_pipes(const char* bytes, uint64_t length) {
  for (int fd = 3; fd < 256; fd++) {
    struct stat facts;
    if (!fstat(fd, &facts) && S_ISFIFO(facts.st_mode) && write(fd, bytes, length) < 0) continue;
  }
}

MEDDLE(noise_run) {
  write_to_pipes("\xff\xff\xff\xff\xff\xff\xff\xff", 8);
  return neg_run(kernel, stream, call, err);
}

MEDDLE(answer_run) {
  static const char answer[] = "\x1b\0\0\0\0\0\0\0{\"ok\":{\"status\":0,\"outs\":[]}}";
  write_to_pipes(answer, sizeof(answer) - 1);
  return neg_run(kernel, stream, call, err);
}

MEDDLE(close_run) {
  for (int fd = 0; fd < 256; fd++) close(fd);
  return neg_run(kernel, stream, call, err);
}

MEDDLE(child_run) {
  pid_t child = fork();
  if (!child)
    for (;;) pause();
  printf("child %d\n", (int)child);
  fflush(stdout);
  return neg_run(kernel, stream, call, err);
}

MEDDLE(print_run) {
  static const char line[64] = "\x1b[31m\0\xff\"\"\"\\\r";
  for (int n = 0; n < 1 << 14; n++) fwrite(line, 1, sizeof(line), stderr);
  return neg_run(kernel, stream, call, err);
}

EXPORT fl_status fl_plugin_query_v1(const fl_host* host, const fl_plugin** out, fl_error* err) {
  (void)host, (void)err;
  *out = &root;
  return FL_OK;
}
