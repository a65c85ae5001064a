/* stream.c - streams: the SDK's engine behind the interface. */
#include <stdlib.h>

#include "core.h"

void ref_stream_release(fl_engine_stream* engine) {
  fl_stream stream = (fl_stream)engine;
  fl_device device = stream->device;
  free(stream);
  ref_device_release(device);
}

void ref_stream_failed(fl_engine_stream* engine, fl_status status) {
  fl_stream stream = (fl_stream)engine;
  ref_log(FL_LOG_ERROR, "%s: a stream of device %d has failed with status %d", ref_plugin_name,
          (int)stream->device->index, (int)status);
}

fl_status ref_stream_create(fl_device device, const fl_stream_create_args* args, fl_stream* out, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  FL_TRY(fl_check_pointer(out, "out", err));
  FL_TRY(fl_check_struct(args, FL_KIND_STREAM_CREATE_ARGS, FL_SIZE_V1_0_STREAM_CREATE_ARGS, "stream_create args", err));
  FL_TRY(fl_check_chain(args->next, err));
  FL_TRY(fl_check_flags(args->flags, 0, "stream_create", err));
  if (args->priority < REF_PRIORITY_GREATEST || args->priority > REF_PRIORITY_LEAST) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "priority %d is outside %d to %d", (int)args->priority,
                   REF_PRIORITY_GREATEST, REF_PRIORITY_LEAST);
  }
  FL_TRY(ref_device_usable(device, err));
  fl_stream stream = calloc(1, sizeof *stream);
  if (stream == NULL) return fl_fail(err, FL_OUT_OF_RESOURCES, "no host memory for another stream");
  stream->device = device;
  atomic_fetch_add(&device->references, 1);
  fl_status status = fl_engine_stream_start(&stream->engine, &device->group, err);
  if (status != FL_OK) {
    ref_stream_release(&stream->engine);
    return status;
  }
  *out = stream;
  return FL_OK;
}

fl_status ref_stream_destroy(fl_stream stream, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(stream, "stream", err));
  fl_engine_stream_destroy(&stream->engine);
  return FL_OK;
}

fl_status ref_stream_query(fl_stream stream, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(stream, "stream", err));
  return fl_engine_stream_query(&stream->engine, err);
}

fl_status ref_stream_sync(fl_stream stream, uint64_t timeout_ns, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(stream, "stream", err));
  return fl_engine_stream_sync(&stream->engine, timeout_ns, err);
}

fl_status ref_stream_host_task(fl_stream stream, fl_host_fn fn, void* arg, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(stream, "stream", err));
  if (fn == NULL) return fl_fail(err, FL_INVALID_ARGUMENT, "the host task is NULL");
  return fl_engine_host_task(&stream->engine, fn, arg, err);
}

fl_status ref_stream_wait_event(fl_stream stream, fl_event event, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(stream, "stream", err));
  FL_TRY(fl_check_pointer(event, "event", err));
  return fl_engine_event_wait(&event->engine, &stream->engine, err);
}
