/* Wants a symbol from its host. */
#include "fake.h"

fl_status fl_host_register(const char* name);

EXPORT fl_status fl_plugin_query_v1(const fl_host* host, const fl_plugin** out, fl_error* err) {
  (void)host, (void)err;
  *out = &root;
  return fl_host_register("fake");
}
