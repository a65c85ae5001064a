/* An older-looking plugin: three slots NULL in two tables and one sub-table absent. */
#include "fake.h"

static fl_plugin lacking;
static fl_event_api events;
static fl_stream_api streams;

EXPORT fl_status fl_plugin_query_v1(const fl_host* host, const fl_plugin** out, fl_error* err) {
  (void)host, (void)err;
  lacking = root;
  events = event_api;
  events.elapsed = NULL;
  streams = stream_api;
  streams.wait_event = NULL;
  streams.host_task = NULL;
  lacking.event = &events;
  lacking.stream = &streams;
  lacking.kernel = NULL;
  *out = &lacking;
  return FL_OK;
}
