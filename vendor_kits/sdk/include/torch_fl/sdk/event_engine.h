/*
 * torch_fl/sdk/event_engine.h - events of the stream engine: a mutable name for the generation recorded last.
 *
 * A vendor embeds fl_engine_event in its event. A never-recorded event counts as complete [FL-STREAM-006].
 */
#ifndef TORCH_FL_SDK_EVENT_ENGINE_H
#define TORCH_FL_SDK_EVENT_ENGINE_H

#include "torch_fl/sdk/stream_engine.h"

typedef struct fl_engine_event {
  fl_engine_group* group; /* of the event's device */
  uint32_t flags;         /* FL_EVENT_TIMING or 0 */
  pthread_mutex_t mutex;  /* guards current */
  fl_generation* current; /* NULL: never recorded */
} fl_engine_event;

static inline void fl_engine_event_init(fl_engine_event* event, fl_engine_group* group, uint32_t flags) {
  event->group = group;
  event->flags = flags;
  event->current = NULL;
  pthread_mutex_init(&event->mutex, NULL);
}

/* Waits already submitted keep their generation. */
static inline void fl_engine_event_destroy(fl_engine_event* event) {
  fl_generation_release(event->current);
  pthread_mutex_destroy(&event->mutex);
}

/* A reference to the current generation, NULL when never recorded. */
static inline fl_generation* fl_engine_event_current(fl_engine_event* event) {
  pthread_mutex_lock(&event->mutex);
  fl_generation* current = event->current;
  if (current != NULL) fl_generation_retain(current);
  pthread_mutex_unlock(&event->mutex);
  return current;
}

/* Starts a generation that completes once all earlier work of the stream has. On a failed stream the record reports
 * the failure and so does the event from then on [FL-ERROR-004]. */
static inline fl_status fl_engine_event_record(fl_engine_event* event, fl_engine_stream* stream, fl_error* err) {
  if (event->group != stream->group) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "event and stream belong to different devices");
  }
  fl_generation* generation = fl_generation_new();
  fl_engine_item* item = fl_engine_item_new(FL_ITEM_RECORD, 0);
  if (generation == NULL || item == NULL) {
    free(item);
    fl_generation_release(generation);
    return fl_fail(err, FL_OUT_OF_RESOURCES, "no host memory for another record");
  }
  item->generation = fl_generation_retain(generation);
  fl_status status = fl_engine_submit(stream, item, err);
  if (status != FL_OK) fl_generation_complete(generation, status, fl_now_ns());
  pthread_mutex_lock(&event->mutex);
  fl_generation* before = event->current;
  event->current = generation;
  pthread_mutex_unlock(&event->mutex);
  fl_generation_release(before);
  return status;
}

/* Later work of the stream starts after the generation that is current now. */
static inline fl_status fl_engine_event_wait(fl_engine_event* event, fl_engine_stream* stream, fl_error* err) {
  fl_generation* generation = fl_engine_event_current(event);
  if (generation == NULL) {
    fl_status status = fl_engine_failure(stream);
    return status == FL_OK ? FL_OK : fl_engine_report(status, err);
  }
  fl_engine_item* item = fl_engine_item_new(FL_ITEM_WAIT, 0);
  if (item == NULL) {
    fl_generation_release(generation);
    return fl_fail(err, FL_OUT_OF_RESOURCES, "no host memory for another wait");
  }
  item->generation = generation;
  return fl_engine_submit(stream, item, err);
}

static inline fl_status fl_engine_event_query(fl_engine_event* event, fl_error* err) {
  fl_generation* generation = fl_engine_event_current(event);
  if (generation == NULL) return FL_OK;
  fl_status status = fl_generation_query(generation, NULL);
  fl_generation_release(generation);
  if (status == FL_OK) return FL_OK;
  if (status == FL_NOT_READY) return fl_fail(err, status, "the event is pending");
  return fl_engine_report(status, err);
}

static inline fl_status fl_engine_event_sync(fl_engine_event* event, uint64_t timeout_ns, fl_error* err) {
  fl_generation* generation = fl_engine_event_current(event);
  if (generation == NULL) return FL_OK;
  fl_status status = fl_generation_wait(generation, timeout_ns);
  fl_generation_release(generation);
  if (status == FL_OK) return FL_OK;
  if (status == FL_TIMEOUT) return fl_fail(err, status, "the event is still pending");
  return fl_engine_report(status, err);
}

/* Time of a recorded event; FL_FAILED_PRECONDITION without a record, FL_NOT_READY while pending. */
static inline fl_status fl_engine_event_time(fl_engine_event* event, int64_t* out_ns, fl_error* err) {
  fl_generation* generation = fl_engine_event_current(event);
  if (generation == NULL) return fl_fail(err, FL_FAILED_PRECONDITION, "an event was never recorded");
  int64_t time_ns = 0;
  fl_status status = fl_generation_query(generation, &time_ns);
  fl_generation_release(generation);
  if (status == FL_NOT_READY) return fl_fail(err, status, "an event is pending");
  if (status != FL_OK) return fl_engine_report(status, err);
  *out_ns = time_ns;
  return FL_OK;
}

/* Nanoseconds between the execution of two records of one device [FL-STREAM-012]. */
static inline fl_status fl_engine_event_elapsed(fl_engine_event* start, fl_engine_event* end, int64_t* out_ns,
                                                fl_error* err) {
  if (start->group != end->group) {
    return fl_fail(err, FL_FAILED_PRECONDITION, "the events belong to different devices");
  }
  if ((start->flags & end->flags & FL_EVENT_TIMING) == 0) {
    return fl_fail(err, FL_FAILED_PRECONDITION, "an event was created without FL_EVENT_TIMING");
  }
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  fl_status status_start = fl_engine_event_time(start, &start_ns, err);
  if (status_start != FL_OK && status_start != FL_NOT_READY) return status_start;
  fl_status status_end = fl_engine_event_time(end, &end_ns, err);
  if (status_end != FL_OK) return status_end;
  if (status_start != FL_OK) return status_start;
  *out_ns = end_ns - start_ns;
  return FL_OK;
}

#endif /* TORCH_FL_SDK_EVENT_ENGINE_H */
