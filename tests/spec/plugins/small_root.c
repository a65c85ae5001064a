/* A root whose struct_size was taken from something smaller. */
#include "fake.h"

static fl_plugin shrunk;

EXPORT fl_status fl_plugin_query_v1(const fl_host* host, const fl_plugin** out, fl_error* err) {
  (void)host, (void)err;
  shrunk = root;
  shrunk.struct_size = 64;
  *out = &shrunk;
  return FL_OK;
}
