/*
 * torch_fl/sdk/stream_types.h - the stream engine's data: groups, streams, items, and whose failure is whose.
 */
#ifndef TORCH_FL_SDK_STREAM_TYPES_H
#define TORCH_FL_SDK_STREAM_TYPES_H

#include <stdalign.h>
#include <stddef.h>

#include "torch_fl/sdk/args.h"
#include "torch_fl/sdk/generation.h"

typedef struct fl_engine_stream fl_engine_stream;

/* All streams of one device. */
typedef struct fl_engine_group {
  uint32_t execution_model; /* FL_EXEC_* */
  _Atomic fl_status lost;   /* FL_OK or FL_DEVICE_LOST */
  /* The last reference is gone: free the object that the stream is embedded in. */
  void (*release)(fl_engine_stream* stream);
  /* The stream has just failed, once per stream; nullable. */
  void (*failed)(fl_engine_stream* stream, fl_status status);
  pthread_mutex_t mutex;   /* guards the list and the references of its streams */
  fl_engine_stream* first; /* destroyed streams stay in the list until their work is done */
} fl_engine_group;

/* One operation. It returns FL_OK or the failure that poisons its stream. */
typedef fl_status (*fl_work_fn)(void* payload);

#define FL_ITEM_WORK 1
#define FL_ITEM_HOST_TASK 2
#define FL_ITEM_RECORD 3
#define FL_ITEM_WAIT 4

typedef struct fl_engine_item {
  struct fl_engine_item* next;
  uint32_t kind;             /* FL_ITEM_* */
  fl_status fault;           /* injected failure of this work, FL_OK for none */
  uint64_t delay_ns;         /* injected delay of this work */
  fl_work_fn work;           /* WORK */
  fl_host_fn task;           /* HOST_TASK */
  void* task_arg;            /* HOST_TASK */
  fl_generation* generation; /* RECORD, WAIT: owned reference */
  alignas(16) unsigned char payload[];
} fl_engine_item;

struct fl_engine_stream {
  fl_engine_group* group;
  fl_engine_stream* next_in_group;
  uint32_t references;   /* handle, worker, device syncs under way; guarded by the group */
  pthread_t worker;      /* ASYNC */
  pthread_mutex_t mutex; /* guards what follows */
  pthread_cond_t submitted_more;
  pthread_cond_t progressed;
  fl_engine_item* head;
  fl_engine_item* tail;
  uint64_t submitted; /* items that took a place in the FIFO; INLINE: items that are done, so that none is pending */
  uint64_t completed;
  uint64_t turns_taken; /* INLINE: submitters that drew a place */
  uint64_t turns_done;
  fl_status status; /* FL_OK or the failure that poisoned the stream */
  fl_status fault_next;
  uint64_t delay_next_ns;
  int busy;    /* the worker has an item, or is still telling somebody about it */
  int closing; /* the handle is gone */
};

/* ---- group ------------------------------------------------------------------------------------------------------- */

static inline void fl_engine_group_init(fl_engine_group* group, uint32_t execution_model,
                                        void (*release)(fl_engine_stream*),
                                        void (*failed)(fl_engine_stream*, fl_status)) {
  group->execution_model = execution_model;
  atomic_init(&group->lost, FL_OK);
  group->release = release;
  group->failed = failed;
  group->first = NULL;
  pthread_mutex_init(&group->mutex, NULL);
}

/* No stream is left. */
static inline void fl_engine_group_destroy(fl_engine_group* group) { pthread_mutex_destroy(&group->mutex); }

static inline void fl_engine_unlink(fl_engine_group* group, fl_engine_stream* stream) {
  fl_engine_stream** link = &group->first;
  while (*link != stream) link = &(*link)->next_in_group;
  *link = stream->next_in_group;
}

static inline void fl_engine_unreference(fl_engine_stream* stream) {
  fl_engine_group* group = stream->group;
  pthread_mutex_lock(&group->mutex);
  stream->references -= 1;
  int last = stream->references == 0;
  if (last) fl_engine_unlink(group, stream);
  pthread_mutex_unlock(&group->mutex);
  if (!last) return;
  pthread_cond_destroy(&stream->submitted_more);
  pthread_cond_destroy(&stream->progressed);
  pthread_mutex_destroy(&stream->mutex);
  group->release(stream);
}

/* ---- items ------------------------------------------------------------------------------------------------------- */

/* A new item with room for a payload, NULL when there is no memory. */
static inline fl_engine_item* fl_engine_item_new(uint32_t kind, uint64_t payload_bytes) {
  if (payload_bytes > SIZE_MAX - sizeof(fl_engine_item)) return NULL;
  fl_engine_item* item = malloc(sizeof(fl_engine_item) + payload_bytes);
  if (item == NULL) return NULL;
  memset(item, 0, sizeof *item);
  item->kind = kind;
  return item;
}

static inline void fl_engine_item_free(fl_engine_item* item) {
  fl_generation_release(item->generation);
  free(item);
}

/* With the stream's lock held. */
static inline fl_status fl_engine_failure_locked(const fl_engine_stream* stream) {
  fl_status lost = atomic_load(&stream->group->lost);
  return lost != FL_OK ? lost : stream->status;
}

static inline fl_status fl_engine_failure(fl_engine_stream* stream) {
  pthread_mutex_lock(&stream->mutex);
  fl_status status = fl_engine_failure_locked(stream);
  pthread_mutex_unlock(&stream->mutex);
  return status;
}

static inline fl_status fl_engine_report(fl_status status, fl_error* err) {
  if (status == FL_DEVICE_LOST) return fl_fail(err, status, "the device is lost");
  return fl_fail(err, status, "an earlier operation of the stream has failed");
}

#endif /* TORCH_FL_SDK_STREAM_TYPES_H */
