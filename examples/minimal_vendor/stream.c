/* stream.c - streams and events: the SDK's engine behind the interface. */
#include "minimal.h"

fl_status min_submit(fl_stream stream, fl_work_fn work, const void* payload, uint64_t bytes, fl_error* err) {
  fl_engine_item* item = fl_engine_item_new(FL_ITEM_WORK, bytes);
  if (item == NULL) return fl_fail(err, FL_OUT_OF_RESOURCES, "no host memory for another operation");
  memcpy(item->payload, payload, bytes);
  item->work = work;
  return fl_engine_submit(&stream->engine, item, err);
}

void min_stream_release(fl_engine_stream* engine) {
  fl_stream stream = (fl_stream)engine;
  fl_device device = stream->device;
  free(stream);
  min_device_release(device);
}

static fl_status stream_create(fl_device device, const fl_stream_create_args* args, fl_stream* out, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  FL_TRY(fl_check_pointer(out, "out", err));
  FL_TRY(fl_check_struct(args, FL_KIND_STREAM_CREATE_ARGS, FL_SIZE_V1_0_STREAM_CREATE_ARGS, "stream_create args", err));
  FL_TRY(fl_check_chain(args->next, err));
  FL_TRY(fl_check_flags(args->flags, 0, "stream_create", err));
  if (args->priority != 0) return fl_fail(err, FL_INVALID_ARGUMENT, "priority %d is not 0", (int)args->priority);
  fl_stream stream = calloc(1, sizeof *stream);
  if (stream == NULL) return fl_fail(err, FL_OUT_OF_RESOURCES, "no host memory for another stream");
  stream->device = device;
  min_device_retain(device);
  fl_status status = fl_engine_stream_start(&stream->engine, &device->group, err);
  if (status != FL_OK) {
    min_stream_release(&stream->engine);
    return status;
  }
  *out = stream;
  return FL_OK;
}

static fl_status stream_destroy(fl_stream stream, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(stream, "stream", err));
  fl_engine_stream_destroy(&stream->engine);
  return FL_OK;
}

static fl_status stream_query(fl_stream stream, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(stream, "stream", err));
  return fl_engine_stream_query(&stream->engine, err);
}

static fl_status stream_sync(fl_stream stream, uint64_t timeout_ns, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(stream, "stream", err));
  return fl_engine_stream_sync(&stream->engine, timeout_ns, err);
}

static fl_status stream_host_task(fl_stream stream, fl_host_fn fn, void* arg, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(stream, "stream", err));
  if (fn == NULL) return fl_fail(err, FL_INVALID_ARGUMENT, "the host task is NULL");
  return fl_engine_host_task(&stream->engine, fn, arg, err);
}

static fl_status stream_wait_event(fl_stream stream, fl_event event, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(stream, "stream", err));
  FL_TRY(fl_check_pointer(event, "event", err));
  return fl_engine_event_wait(&event->engine, &stream->engine, err);
}

const fl_stream_api min_stream_api = {
    .struct_size = sizeof(fl_stream_api),
    .kind = FL_KIND_STREAM_API,
    .create = stream_create,
    .destroy = stream_destroy,
    .query = stream_query,
    .sync = stream_sync,
    .host_task = stream_host_task,
    .wait_event = stream_wait_event,
};

/* ---- events ------------------------------------------------------------------------------------------------------ */

static fl_status event_create(fl_device device, const fl_event_create_args* args, fl_event* out, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  FL_TRY(fl_check_pointer(out, "out", err));
  FL_TRY(fl_check_struct(args, FL_KIND_EVENT_CREATE_ARGS, FL_SIZE_V1_0_EVENT_CREATE_ARGS, "event_create args", err));
  FL_TRY(fl_check_chain(args->next, err));
  FL_TRY(fl_check_flags(args->flags, FL_EVENT_TIMING, "event_create", err));
  fl_event event = calloc(1, sizeof *event);
  if (event == NULL) return fl_fail(err, FL_OUT_OF_RESOURCES, "no host memory for another event");
  fl_engine_event_init(&event->engine, &device->group, args->flags);
  *out = event;
  return FL_OK;
}

static fl_status event_destroy(fl_event event, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(event, "event", err));
  fl_engine_event_destroy(&event->engine);
  free(event);
  return FL_OK;
}

static fl_status event_record(fl_event event, fl_stream stream, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(event, "event", err));
  FL_TRY(fl_check_pointer(stream, "stream", err));
  return fl_engine_event_record(&event->engine, &stream->engine, err);
}

static fl_status event_query(fl_event event, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(event, "event", err));
  return fl_engine_event_query(&event->engine, err);
}

static fl_status event_sync(fl_event event, uint64_t timeout_ns, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(event, "event", err));
  return fl_engine_event_sync(&event->engine, timeout_ns, err);
}

static fl_status event_elapsed(fl_event start, fl_event end, int64_t* out_ns, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(start, "start", err));
  FL_TRY(fl_check_pointer(end, "end", err));
  FL_TRY(fl_check_pointer(out_ns, "out_ns", err));
  return fl_engine_event_elapsed(&start->engine, &end->engine, out_ns, err);
}

const fl_event_api min_event_api = {
    .struct_size = sizeof(fl_event_api),
    .kind = FL_KIND_EVENT_API,
    .create = event_create,
    .destroy = event_destroy,
    .record = event_record,
    .query = event_query,
    .sync = event_sync,
    .elapsed = event_elapsed,
};
