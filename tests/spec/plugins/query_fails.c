/* Says why it cannot run here. */
#include "fake.h"

EXPORT fl_status fl_plugin_query_v1(const fl_host* host, const fl_plugin** out, fl_error* err) {
  (void)host, (void)out;
  return fail(err, FL_FAILED_PRECONDITION, "driver 7 or newer needed, found 3");
}
