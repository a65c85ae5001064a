/*
 * torch_fl/sdk/stream_engine.h - FIFO streams for a device whose work is a C function.
 *
 * ASYNC: one worker thread per stream takes items in order; submits never wait for work. INLINE: the submitting thread
 * runs its item itself, in turn with other submitters of the stream.
 * A stream that has failed stays failed: work is skipped, host tasks run with the failure, generations complete with
 * it, waiters inherit it [FL-ERROR-004]. Destroying a stream never waits for its work [FL-THREAD-005].
 *
 * Waiting for streams is in stream_wait.h, events are in event_engine.h. A vendor embeds fl_engine_group in its device
 * and fl_engine_stream as first member of its stream; the engine knows nothing else of either.
 * Locks: group before stream before generation; none is held while work, host tasks or the group's callbacks run, nor
 * while anything is waited for [FL-THREAD-003, 004]. Compile with -D_GNU_SOURCE (or POSIX 2008) and -pthread, link with -lm.
 */
#ifndef TORCH_FL_SDK_STREAM_ENGINE_H
#define TORCH_FL_SDK_STREAM_ENGINE_H

#include <fenv.h>
#include <signal.h>

#include "torch_fl/sdk/float_environment.h"
#include "torch_fl/sdk/stream_types.h"

/* What a waiter inherits: the loss of another device is to this one a failed operation. */
static inline fl_status fl_engine_inherited(const fl_engine_stream* stream, fl_status status) {
  if (status == FL_OK) return FL_OK;
  fl_status lost = atomic_load(&stream->group->lost);
  return lost != FL_OK ? lost : FL_ASYNC_FAILURE;
}

/* Runs the item with no lock held; returns the failure that it brings upon its stream. */
static inline fl_status fl_engine_execute(fl_engine_stream* stream, fl_engine_item* item) {
  fl_status before = fl_engine_failure(stream);
  if (item->kind == FL_ITEM_HOST_TASK) {
    item->task(item->task_arg, before);
    return FL_OK;
  }
  if (item->kind == FL_ITEM_WAIT) {
    fl_status status = fl_generation_wait(item->generation, FL_FOREVER);
    return fl_engine_inherited(stream, status);
  }
  if (item->kind == FL_ITEM_WORK && before == FL_OK) {
    if (item->delay_ns > 0) fl_sleep_ns(item->delay_ns);
    if (item->fault != FL_OK) return item->fault;
    return item->work(item->payload);
  }
  return FL_OK;
}

/* Frees the item, then makes its end visible, all of it at once: failure, generation, count. */
static inline void fl_engine_finish(fl_engine_stream* stream, fl_engine_item* item, fl_status failure) {
  int first = 0;
  fl_generation* recorded = item->kind == FL_ITEM_RECORD ? fl_generation_retain(item->generation) : NULL;
  fl_engine_item_free(item);
  pthread_mutex_lock(&stream->mutex);
  if (failure == FL_DEVICE_LOST) atomic_store(&stream->group->lost, FL_DEVICE_LOST);
  if (failure != FL_OK && stream->status == FL_OK) {
    stream->status = failure;
    first = 1;
  }
  if (recorded != NULL) fl_generation_complete(recorded, fl_engine_failure_locked(stream), fl_now_ns());
  stream->completed += 1;
  if (stream->group->execution_model == FL_EXEC_INLINE) stream->submitted += 1;
  pthread_cond_broadcast(&stream->progressed);
  pthread_mutex_unlock(&stream->mutex);
  fl_generation_release(recorded);
  if (first && stream->group->failed != NULL) stream->group->failed(stream, failure);
}

/* ---- worker (ASYNC) ---------------------------------------------------------------------------------------------- */

/* The next item, NULL when the stream is destroyed and empty. */
static inline fl_engine_item* fl_engine_take(fl_engine_stream* stream) {
  pthread_mutex_lock(&stream->mutex);
  stream->busy = 0;
  while (stream->head == NULL && !stream->closing) pthread_cond_wait(&stream->submitted_more, &stream->mutex);
  fl_engine_item* item = stream->head;
  stream->busy = item != NULL;
  if (item != NULL) stream->head = item->next;
  if (stream->head == NULL) stream->tail = NULL;
  pthread_mutex_unlock(&stream->mutex);
  return item;
}

static inline void* fl_engine_worker(void* argument) {
  fl_engine_stream* stream = argument;
  fesetenv(FE_DFL_ENV); /* a thread inherits its creator's, which may flush subnormals or round otherwise */
  for (;;) {
    fl_engine_item* item = fl_engine_take(stream);
    if (item == NULL) break;
    fl_status failure = fl_engine_execute(stream, item);
    fl_engine_finish(stream, item, failure);
  }
  fl_engine_unreference(stream);
  return NULL;
}

/* Starts the worker with every asynchronous signal blocked: they belong to the host's threads. */
static inline int fl_engine_start_worker(fl_engine_stream* stream) {
  static const int synchronous[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
  sigset_t blocked;
  sigset_t before;
  sigfillset(&blocked);
  for (size_t i = 0; i < sizeof synchronous / sizeof synchronous[0]; i++) sigdelset(&blocked, synchronous[i]);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  int failed = pthread_create(&stream->worker, NULL, fl_engine_worker, stream);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return failed;
}

/* ---- submitting -------------------------------------------------------------------------------------------------- */

/* With the stream's lock held: the next work takes what fl.fault has laid ready. */
static inline void fl_engine_take_fault(fl_engine_stream* stream, fl_engine_item* item) {
  if (item->kind != FL_ITEM_WORK) return;
  item->fault = stream->fault_next;
  item->delay_ns = stream->delay_next_ns;
  stream->fault_next = FL_OK;
  stream->delay_next_ns = 0;
}

static inline fl_status fl_engine_submit_async(fl_engine_stream* stream, fl_engine_item* item, fl_error* err) {
  pthread_mutex_lock(&stream->mutex);
  fl_status status = fl_engine_failure_locked(stream);
  if (status == FL_OK) {
    fl_engine_take_fault(stream, item);
    if (stream->tail != NULL) stream->tail->next = item;
    if (stream->tail == NULL) stream->head = item;
    stream->tail = item;
    stream->submitted += 1;
    pthread_cond_signal(&stream->submitted_more);
  }
  pthread_mutex_unlock(&stream->mutex);
  if (status == FL_OK) return FL_OK;
  fl_engine_item_free(item);
  return fl_engine_report(status, err);
}

static inline fl_status fl_engine_submit_inline(fl_engine_stream* stream, fl_engine_item* item, fl_error* err) {
  pthread_mutex_lock(&stream->mutex);
  uint64_t turn = stream->turns_taken;
  stream->turns_taken += 1;
  while (stream->turns_done != turn) pthread_cond_wait(&stream->progressed, &stream->mutex);
  fl_status refused = fl_engine_failure_locked(stream);
  if (refused == FL_OK) fl_engine_take_fault(stream, item);
  pthread_mutex_unlock(&stream->mutex);

  fl_status failure = refused;
  if (refused != FL_OK) {
    fl_engine_item_free(item);
  } else {
    fl_float_environment kept;
    fl_float_enter(&kept);
    failure = fl_engine_execute(stream, item);
    fl_float_leave(&kept);
    fl_engine_finish(stream, item, failure);
  }

  pthread_mutex_lock(&stream->mutex);
  stream->turns_done += 1;
  pthread_cond_broadcast(&stream->progressed);
  pthread_mutex_unlock(&stream->mutex);
  if (failure == FL_OK) return FL_OK;
  if (refused != FL_OK) return fl_engine_report(failure, err);
  return fl_fail(err, failure, "the operation has failed");
}

/* Takes the item, whatever comes of it. A failed stream refuses it with its failure. */
static inline fl_status fl_engine_submit(fl_engine_stream* stream, fl_engine_item* item, fl_error* err) {
  if (item == NULL) return fl_fail(err, FL_OUT_OF_RESOURCES, "no host memory for another operation");
  if (stream->group->execution_model == FL_EXEC_INLINE) return fl_engine_submit_inline(stream, item, err);
  return fl_engine_submit_async(stream, item, err);
}

static inline fl_status fl_engine_host_task(fl_engine_stream* stream, fl_host_fn task, void* arg, fl_error* err) {
  fl_engine_item* item = fl_engine_item_new(FL_ITEM_HOST_TASK, 0);
  if (item != NULL) {
    item->task = task;
    item->task_arg = arg;
  }
  return fl_engine_submit(stream, item, err);
}

/* What fl.fault does: the next work of the stream fails with `fault`, or takes `delay_ns` longer. */
static inline fl_status fl_engine_inject(fl_engine_stream* stream, fl_status fault, uint64_t delay_ns, fl_error* err) {
  pthread_mutex_lock(&stream->mutex);
  fl_status status = fl_engine_failure_locked(stream);
  if (status == FL_OK && fault != FL_OK) stream->fault_next = fault;
  if (status == FL_OK && delay_ns != 0) stream->delay_next_ns = delay_ns;
  pthread_mutex_unlock(&stream->mutex);
  return status == FL_OK ? FL_OK : fl_engine_report(status, err);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* Sets up the stream inside the vendor's object and starts its worker. On failure nothing is left to undo. */
static inline fl_status fl_engine_stream_start(fl_engine_stream* stream, fl_engine_group* group, fl_error* err) {
  int async = group->execution_model == FL_EXEC_ASYNC;
  memset(stream, 0, sizeof *stream);
  stream->group = group;
  stream->references = async ? 2 : 1;
  pthread_mutex_init(&stream->mutex, NULL);
  fl_cond_init(&stream->submitted_more);
  fl_cond_init(&stream->progressed);
  int failed = async ? fl_engine_start_worker(stream) : 0;
  if (failed != 0) {
    pthread_cond_destroy(&stream->progressed);
    pthread_cond_destroy(&stream->submitted_more);
    pthread_mutex_destroy(&stream->mutex);
    return fl_fail(err, FL_OUT_OF_RESOURCES, "no thread for another stream: %s", strerror(failed));
  }
  /* Listed only once nothing can fail any more: a device sync would keep a reference to what the vendor frees. */
  pthread_mutex_lock(&group->mutex);
  stream->next_in_group = group->first;
  group->first = stream;
  pthread_mutex_unlock(&group->mutex);
  return FL_OK;
}

/* Gives the handle up. An idle worker is seen out, so that no thread outlives its stream; a busy one is left to finish
 * and go by itself. */
static inline void fl_engine_stream_destroy(fl_engine_stream* stream) {
  int async = stream->group->execution_model == FL_EXEC_ASYNC;
  pthread_mutex_lock(&stream->mutex);
  int idle = !stream->busy && stream->head == NULL;
  stream->closing = 1;
  pthread_cond_signal(&stream->submitted_more);
  pthread_mutex_unlock(&stream->mutex);
  if (async && idle) pthread_join(stream->worker, NULL);
  if (async && !idle) pthread_detach(stream->worker);
  fl_engine_unreference(stream);
}

#endif /* TORCH_FL_SDK_STREAM_ENGINE_H */
