/* Two sub-tables swapped: each is well formed and in the wrong place. */
#include "fake.h"

static fl_plugin swapped;

EXPORT fl_status fl_plugin_query_v1(const fl_host* host, const fl_plugin** out, fl_error* err) {
  (void)host, (void)err;
  swapped = root;
  swapped.event = (const fl_event_api*)&stream_api;
  swapped.stream = (const fl_stream_api*)&event_api;
  *out = &swapped;
  return FL_OK;
}
