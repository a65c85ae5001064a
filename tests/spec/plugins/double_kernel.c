/* Lists one kernel twice. */
#define KERNELS NEG_KERNEL, NEG_KERNEL
#include "fake.h"

EXPORT fl_status fl_plugin_query_v1(const fl_host* host, const fl_plugin** out, fl_error* err) {
  (void)host, (void)err;
  *out = &root;
  return FL_OK;
}
