/* Never comes back from its query. */
#include <unistd.h>

#include "fake.h"

EXPORT fl_status fl_plugin_query_v1(const fl_host* host, const fl_plugin** out, fl_error* err) {
  (void)host, (void)out, (void)err;
  for (;;) pause();
}
