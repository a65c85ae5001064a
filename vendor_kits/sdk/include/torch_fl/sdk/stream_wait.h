/*
 * torch_fl/sdk/stream_wait.h - asking and waiting for streams of the engine; no lock is held while waiting.
 */
#ifndef TORCH_FL_SDK_STREAM_WAIT_H
#define TORCH_FL_SDK_STREAM_WAIT_H

#include "torch_fl/sdk/stream_types.h"

static inline fl_status fl_engine_stream_query(fl_engine_stream* stream, fl_error* err) {
  pthread_mutex_lock(&stream->mutex);
  fl_status status = fl_engine_failure_locked(stream);
  int pending = stream->completed != stream->submitted;
  pthread_mutex_unlock(&stream->mutex);
  if (status != FL_OK) return fl_engine_report(status, err);
  if (pending) return fl_fail(err, FL_NOT_READY, "the stream has pending work");
  return FL_OK;
}

/* Waits until `target` items have completed: FL_OK or FL_TIMEOUT. */
static inline fl_status fl_engine_wait_until(fl_engine_stream* stream, uint64_t target, const fl_deadline* deadline) {
  pthread_mutex_lock(&stream->mutex);
  while (stream->completed < target) {
    if (!fl_cond_wait(&stream->progressed, &stream->mutex, deadline)) break;
  }
  fl_status status = stream->completed < target ? FL_TIMEOUT : FL_OK;
  pthread_mutex_unlock(&stream->mutex);
  return status;
}

static inline uint64_t fl_engine_submitted(fl_engine_stream* stream) {
  pthread_mutex_lock(&stream->mutex);
  uint64_t submitted = stream->submitted;
  pthread_mutex_unlock(&stream->mutex);
  return submitted;
}

/* Waits for what was submitted before this call, then reports the stream's failure if it has one. */
static inline fl_status fl_engine_stream_sync(fl_engine_stream* stream, uint64_t timeout_ns, fl_error* err) {
  fl_deadline deadline = fl_deadline_after(timeout_ns);
  fl_status status = fl_engine_wait_until(stream, fl_engine_submitted(stream), &deadline);
  if (status != FL_OK) return fl_fail(err, status, "the stream still has pending work");
  status = fl_engine_failure(stream);
  return status == FL_OK ? FL_OK : fl_engine_report(status, err);
}

/* The same for all streams of the group, destroyed ones with pending work included; a destroyed stream's failure is
 * no longer reported. */
static inline fl_status fl_engine_group_sync(fl_engine_group* group, uint64_t timeout_ns, fl_error* err) {
  fl_deadline deadline = fl_deadline_after(timeout_ns);
  typedef struct {
    fl_engine_stream* stream;
    uint64_t target;
  } snapshot;
  size_t count = 0;
  pthread_mutex_lock(&group->mutex);
  for (fl_engine_stream* stream = group->first; stream != NULL; stream = stream->next_in_group) count++;
  snapshot* streams = malloc((count + 1) * sizeof *streams);
  size_t taken = 0;
  for (fl_engine_stream* stream = group->first; stream != NULL && streams != NULL; stream = stream->next_in_group) {
    stream->references += 1;
    streams[taken].stream = stream;
    streams[taken].target = fl_engine_submitted(stream);
    taken++;
  }
  pthread_mutex_unlock(&group->mutex);
  if (streams == NULL) return fl_fail(err, FL_OUT_OF_RESOURCES, "no host memory to wait for %zu streams", count);

  fl_status status = FL_OK;
  fl_status failure = FL_OK;
  for (size_t i = 0; i < taken; i++) {
    fl_engine_stream* stream = streams[i].stream;
    if (status == FL_OK) status = fl_engine_wait_until(stream, streams[i].target, &deadline);
    pthread_mutex_lock(&stream->mutex);
    if (!stream->closing && failure == FL_OK) failure = fl_engine_failure_locked(stream);
    pthread_mutex_unlock(&stream->mutex);
    fl_engine_unreference(stream);
  }
  free(streams);
  if (status != FL_OK) return fl_fail(err, status, "the device still has pending work");
  if (atomic_load(&group->lost) != FL_OK) failure = FL_DEVICE_LOST;
  return failure == FL_OK ? FL_OK : fl_engine_report(failure, err);
}

#endif /* TORCH_FL_SDK_STREAM_WAIT_H */
