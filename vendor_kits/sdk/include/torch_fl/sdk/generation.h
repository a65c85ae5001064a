/*
 * torch_fl/sdk/generation.h - one completion that many may wait for.
 *
 * Each record of an event makes a new generation; whoever waits holds a reference to the very generation that was
 * current when the wait was called, so that neither a later record nor the destruction of the event changes what is
 * waited for [FL-STREAM-003, 004, 006].
 */
#ifndef TORCH_FL_SDK_GENERATION_H
#define TORCH_FL_SDK_GENERATION_H

#include <stdatomic.h>
#include <stdlib.h>

#include "torch_fl/plugin.h"
#include "torch_fl/sdk/clock.h"

typedef struct fl_generation {
  atomic_uint references;
  pthread_mutex_t mutex; /* guards what follows */
  pthread_cond_t completed;
  int complete;
  fl_status status; /* FL_OK, or the failure of the stream that recorded it */
  int64_t time_ns;  /* when the record was executed */
} fl_generation;

/* One reference, pending. NULL when there is no memory. */
static inline fl_generation* fl_generation_new(void) {
  fl_generation* generation = malloc(sizeof *generation);
  if (generation == NULL) return NULL;
  atomic_init(&generation->references, 1);
  pthread_mutex_init(&generation->mutex, NULL);
  fl_cond_init(&generation->completed);
  generation->complete = 0;
  generation->status = FL_OK;
  generation->time_ns = 0;
  return generation;
}

static inline fl_generation* fl_generation_retain(fl_generation* generation) {
  atomic_fetch_add(&generation->references, 1);
  return generation;
}

/* NULL is allowed. */
static inline void fl_generation_release(fl_generation* generation) {
  if (generation == NULL) return;
  if (atomic_fetch_sub(&generation->references, 1) != 1) return;
  pthread_cond_destroy(&generation->completed);
  pthread_mutex_destroy(&generation->mutex);
  free(generation);
}

static inline void fl_generation_complete(fl_generation* generation, fl_status status, int64_t time_ns) {
  pthread_mutex_lock(&generation->mutex);
  generation->complete = 1;
  generation->status = status;
  generation->time_ns = time_ns;
  pthread_cond_broadcast(&generation->completed);
  pthread_mutex_unlock(&generation->mutex);
}

/* FL_TIMEOUT while pending, else the status it completed with. */
static inline fl_status fl_generation_wait(fl_generation* generation, uint64_t timeout_ns) {
  fl_deadline deadline = fl_deadline_after(timeout_ns);
  pthread_mutex_lock(&generation->mutex);
  while (!generation->complete) {
    if (!fl_cond_wait(&generation->completed, &generation->mutex, &deadline)) break;
  }
  fl_status status = generation->complete ? generation->status : FL_TIMEOUT;
  pthread_mutex_unlock(&generation->mutex);
  return status;
}

/* FL_NOT_READY while pending, else the status it completed with and, where out_ns is given, its time. */
static inline fl_status fl_generation_query(fl_generation* generation, int64_t* out_ns) {
  pthread_mutex_lock(&generation->mutex);
  fl_status status = generation->complete ? generation->status : FL_NOT_READY;
  if (out_ns != NULL) *out_ns = generation->time_ns;
  pthread_mutex_unlock(&generation->mutex);
  return status;
}

#endif /* TORCH_FL_SDK_GENERATION_H */
