/* event.c - events: the SDK's engine behind the interface. */
#include <stdlib.h>

#include "core.h"

fl_status ref_event_create(fl_device device, const fl_event_create_args* args, fl_event* out, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  FL_TRY(fl_check_pointer(out, "out", err));
  FL_TRY(fl_check_struct(args, FL_KIND_EVENT_CREATE_ARGS, FL_SIZE_V1_0_EVENT_CREATE_ARGS, "event_create args", err));
  FL_TRY(fl_check_chain(args->next, err));
  FL_TRY(fl_check_flags(args->flags, FL_EVENT_TIMING, "event_create", err));
  FL_TRY(ref_device_usable(device, err));
  fl_event event = calloc(1, sizeof *event);
  if (event == NULL) return fl_fail(err, FL_OUT_OF_RESOURCES, "no host memory for another event");
  fl_engine_event_init(&event->engine, &device->group, args->flags);
  *out = event;
  return FL_OK;
}

fl_status ref_event_destroy(fl_event event, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(event, "event", err));
  fl_engine_event_destroy(&event->engine);
  free(event);
  return FL_OK;
}

fl_status ref_event_record(fl_event event, fl_stream stream, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(event, "event", err));
  FL_TRY(fl_check_pointer(stream, "stream", err));
  return fl_engine_event_record(&event->engine, &stream->engine, err);
}

fl_status ref_event_query(fl_event event, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(event, "event", err));
  return fl_engine_event_query(&event->engine, err);
}

fl_status ref_event_sync(fl_event event, uint64_t timeout_ns, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(event, "event", err));
  return fl_engine_event_sync(&event->engine, timeout_ns, err);
}

fl_status ref_event_elapsed(fl_event start, fl_event end, int64_t* out_ns, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(start, "start", err));
  FL_TRY(fl_check_pointer(end, "end", err));
  FL_TRY(fl_check_pointer(out_ns, "out_ns", err));
  return fl_engine_event_elapsed(&start->engine, &end->engine, out_ns, err);
}
