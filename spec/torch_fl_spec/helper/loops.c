/* Loops too hot for Python: storms of calls from several threads, checked while they run. */
#define _GNU_SOURCE
#include "torch_fl_helper.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 16, LIVE_PER_THREAD = 64, TEXT = 256 };

/* xorshift64*: the draws of a storm depend on its seed and the thread's number only. */
static uint64_t draw(uint64_t* state) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * 2685821657736338717u;
}

static uint64_t seeded(uint64_t seed, uint64_t thread) { return (seed + 1) * 0x9E3779B97F4A7C15u ^ (thread + 1) << 32; }

static void note_status(flh_outcome* outcome, fl_status status) {
  outcome->calls++;
  if (status == FL_OK) return;
  if (outcome->failures++ == 0) outcome->first_failure = status;
}

typedef struct starter {
  pthread_barrier_t* barrier;
  void* (*body)(void*);
  void* argument;
} starter;

static void* start(void* argument) {
  starter* self = argument;
  pthread_barrier_wait(self->barrier);
  return self->body(self->argument);
}

/* Runs body(argument + n * stride) on `threads` threads and waits. All start at once: a short storm would else be over
 * on one thread before the next is there. */
static void on_threads(uint64_t threads, void* (*body)(void*), void* arguments, uint64_t stride) {
  pthread_t ids[MAX_THREADS];
  starter starters[MAX_THREADS];
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, NULL, (unsigned)threads);
  for (uint64_t n = 0; n < threads; n++) {
    starters[n] = (starter){&barrier, body, (char*)arguments + n * stride};
    pthread_create(&ids[n], NULL, start, &starters[n]);
  }
  for (uint64_t n = 0; n < threads; n++) pthread_join(ids[n], NULL);
  pthread_barrier_destroy(&barrier);
}

static void add(flh_outcome* total, const flh_outcome* part) {
  if (total->failures == 0) total->first_failure = part->first_failure;
  total->calls += part->calls;
  total->failures += part->failures;
  total->wrong += part->wrong;
}

static fl_error error_with(char* text) {
  text[0] = 0;
  return (fl_error){sizeof(fl_error), FL_KIND_ERROR, 0, 0, 0, text, TEXT, 0};
}

/* ---- Allocation storm ---------------------------------------------------------------------------------- */

typedef struct range {
  uint64_t base, bytes; /* bytes 0: free slot */
} range;

typedef struct alloc_shared {
  const fl_plugin* plugin;
  fl_device device;
  pthread_mutex_t mutex;
  range live[MAX_THREADS * LIVE_PER_THREAD];
  uint64_t slots, count, max_bytes, max_align, alloc_align, seed;
} alloc_shared;

typedef struct alloc_thread {
  alloc_shared* shared;
  uint64_t number;
  flh_outcome outcome;
} alloc_thread;

static uint64_t enter_range(alloc_shared* shared, uint64_t slot, range made) {
  uint64_t overlaps = 0;
  pthread_mutex_lock(&shared->mutex);
  for (uint64_t n = 0; n < shared->slots; n++) {
    const range* other = &shared->live[n];
    overlaps += other->bytes && made.base < other->base + other->bytes && other->base < made.base + made.bytes;
  }
  shared->live[slot] = made;
  pthread_mutex_unlock(&shared->mutex);
  return overlaps != 0;
}

static range leave_range(alloc_shared* shared, uint64_t slot) {
  pthread_mutex_lock(&shared->mutex);
  range gone = shared->live[slot];
  shared->live[slot] = (range){0, 0};
  pthread_mutex_unlock(&shared->mutex);
  return gone;
}

static void* alloc_body(void* argument) {
  alloc_thread* self = argument;
  alloc_shared* shared = self->shared;
  uint64_t state = seeded(shared->seed, self->number);
  for (uint64_t n = 0; n < shared->count + LIVE_PER_THREAD; n++) {
    int draining = n >= shared->count;
    uint64_t slot = self->number * LIVE_PER_THREAD + (draining ? n - shared->count : draw(&state) % LIVE_PER_THREAD);
    range old = leave_range(shared, slot);
    if (old.bytes)
      note_status(&self->outcome, shared->plugin->memory->free(shared->device, old.base, old.bytes, NULL));
    if (draining) continue;
    /* Sizes of every magnitude, alignments 0 and all powers of two. */
    uint64_t bytes = 1 + draw(&state) % (1u + (shared->max_bytes >> draw(&state) % 20));
    uint64_t align = draw(&state) % 2 ? 0 : (uint64_t)1 << draw(&state) % 20;
    if (align > shared->max_align) align = shared->max_align;
    fl_mem_alloc_args args = {sizeof(args), FL_KIND_MEM_ALLOC_ARGS, NULL, bytes, align, FL_ALLOC_DEVICE, 0};
    range made = {0, bytes};
    fl_status status = shared->plugin->memory->alloc(shared->device, &args, &made.base, NULL);
    note_status(&self->outcome, status);
    if (status != FL_OK) continue;
    uint64_t due = align > shared->alloc_align ? align : shared->alloc_align;
    if (made.base == 0 || made.base % due) self->outcome.wrong++;
    self->outcome.wrong += enter_range(shared, slot, made);
  }
  return NULL;
}

void flh_alloc_storm(const fl_plugin* plugin, fl_device device, uint64_t threads, uint64_t count, uint64_t max_bytes,
                     uint64_t alloc_align, uint64_t max_align, uint64_t seed, flh_outcome* out) {
  alloc_shared* shared = calloc(1, sizeof(*shared));
  *shared = (alloc_shared){plugin, device, PTHREAD_MUTEX_INITIALIZER, {{0, 0}}, threads * LIVE_PER_THREAD, count,
                           max_bytes, max_align, alloc_align, seed};
  alloc_thread all[MAX_THREADS] = {{0}};
  for (uint64_t n = 0; n < threads; n++) all[n] = (alloc_thread){shared, n, {0}};
  on_threads(threads, alloc_body, all, sizeof(all[0]));
  for (uint64_t n = 0; n < threads; n++) add(out, &all[n].outcome);
  free(shared);
}

/* ---- Create and destroy ---------------------------------------------------------------------------------- */

typedef struct cycle_thread {
  const fl_plugin* plugin;
  fl_device device;
  uint64_t what, count, bytes;
  flh_outcome outcome;
} cycle_thread;

static void cycle_once(cycle_thread* self) {
  const fl_plugin* plugin = self->plugin;
  flh_outcome* outcome = &self->outcome;
  fl_status status = FL_OK;
  if (self->what == FLH_CYCLE_STREAM) {
    fl_stream_create_args args = {sizeof(args), FL_KIND_STREAM_CREATE_ARGS, NULL, 0, 0};
    fl_stream stream = NULL;
    note_status(outcome, status = plugin->stream->create(self->device, &args, &stream, NULL));
    if (status == FL_OK) note_status(outcome, plugin->stream->destroy(stream, NULL));
  } else if (self->what == FLH_CYCLE_EVENT) {
    fl_event_create_args args = {sizeof(args), FL_KIND_EVENT_CREATE_ARGS, NULL, FL_EVENT_TIMING, 0};
    fl_event event = NULL;
    note_status(outcome, status = plugin->event->create(self->device, &args, &event, NULL));
    if (status == FL_OK) note_status(outcome, plugin->event->destroy(event, NULL));
  } else if (self->what == FLH_CYCLE_ALLOC) {
    fl_mem_alloc_args args = {sizeof(args), FL_KIND_MEM_ALLOC_ARGS, NULL, self->bytes, 0, FL_ALLOC_DEVICE, 0};
    uint64_t base = 0;
    note_status(outcome, status = plugin->memory->alloc(self->device, &args, &base, NULL));
    if (status == FL_OK) note_status(outcome, plugin->memory->free(self->device, base, self->bytes, NULL));
  } else {
    /* A call that must fail and must leave nothing behind. */
    uint64_t base = 0;
    fl_mem_alloc_args args = {sizeof(args), FL_KIND_MEM_ALLOC_ARGS, NULL, self->bytes, 0, FL_ALLOC_DEVICE, 0};
    status = plugin->memory->alloc(self->device, &args, &base, NULL);
    outcome->calls++;
    outcome->wrong += status == FL_OK;
    if (status == FL_OK) plugin->memory->free(self->device, base, self->bytes, NULL);
  }
}

static void* cycle_body(void* argument) {
  cycle_thread* self = argument;
  for (uint64_t n = 0; n < self->count; n++) cycle_once(self);
  return NULL;
}

void flh_cycle(const fl_plugin* plugin, fl_device device, uint64_t what, uint64_t threads, uint64_t count,
               uint64_t bytes, flh_outcome* out) {
  cycle_thread all[MAX_THREADS] = {{0}};
  for (uint64_t n = 0; n < threads; n++) all[n] = (cycle_thread){plugin, device, what, count, bytes, {0}};
  on_threads(threads, cycle_body, all, sizeof(all[0]));
  for (uint64_t n = 0; n < threads; n++) add(out, &all[n].outcome);
}

/* ---- Submits ------------------------------------------------------------------------------------------------ */

typedef struct submit_thread {
  const fl_plugin* plugin;
  fl_stream stream;
  flh_record* record;
  uint64_t number, count, base;
  flh_outcome outcome;
} submit_thread;

static void* submit_body(void* argument) {
  submit_thread* self = argument;
  for (uint64_t n = 0; n < self->count; n++) {
    void* ticket = flh_record_ticket(self->record, (int64_t)(self->number * self->count + n));
    note_status(&self->outcome, self->plugin->stream->host_task(self->stream, flh_alone_task, ticket, NULL));
    if (!self->base) continue;
    fl_status status = self->plugin->memory->fill(self->stream, self->base, self->number * 8, n + 1, 8, 1, NULL);
    note_status(&self->outcome, status);
  }
  return NULL;
}

void flh_submit_storm(const fl_plugin* plugin, fl_stream stream, flh_record* record, uint64_t threads, uint64_t count,
                      uint64_t base, flh_outcome* out) {
  submit_thread all[MAX_THREADS] = {{0}};
  for (uint64_t n = 0; n < threads; n++)
    all[n] = (submit_thread){plugin, stream, record, n, count, base, {0}};
  on_threads(threads, submit_body, all, sizeof(all[0]));
  for (uint64_t n = 0; n < threads; n++) add(out, &all[n].outcome);
}

/* ---- Errors of two threads ------------------------------------------------------------------------------------ */

typedef struct error_thread {
  const fl_plugin* plugin;
  fl_device device;
  uint64_t number, count, foreign;
  char expected[TEXT];
  flh_outcome outcome;
} error_thread;

/* Two failures with texts of their own: an unknown option, named by the text, and an allocation of nothing. */
static fl_status provoke(error_thread* self, fl_error* err) {
  if (self->number % 2) {
    uint64_t base = 0;
    fl_mem_alloc_args args = {sizeof(args), FL_KIND_MEM_ALLOC_ARGS, NULL, 0, 0, FL_ALLOC_DEVICE, 0};
    return self->plugin->memory->alloc(self->device, &args, &base, err);
  }
  fl_stream stream = NULL;
  fl_stream_create_args args = {sizeof(args), FL_KIND_STREAM_CREATE_ARGS, NULL, INT32_MAX, 0};
  return self->plugin->stream->create(self->device, &args, &stream, err);
}

static void* error_body(void* argument) {
  error_thread* self = argument;
  char text[TEXT];
  for (uint64_t n = 0; n < self->count; n++) {
    fl_error err = error_with(text);
    fl_status status = provoke(self, &err);
    self->outcome.calls++;
    self->outcome.failures += status == FL_OK;
    self->outcome.wrong += err.length != strlen(text);
    self->foreign += strncmp(text, self->expected, TEXT) != 0;
  }
  return NULL;
}

void flh_error_storm(const fl_plugin* plugin, fl_device device, uint64_t threads, uint64_t count, flh_outcome* out) {
  error_thread all[MAX_THREADS] = {{0}};
  for (uint64_t n = 0; n < threads; n++) {
    all[n] = (error_thread){plugin, device, n, count, 0, {0}, {0}};
    fl_error err = error_with(all[n].expected); /* alone, so this text is the right one */
    provoke(&all[n], &err);
  }
  on_threads(threads, error_body, all, sizeof(all[0]));
  for (uint64_t n = 0; n < threads; n++) {
    char again[TEXT];
    fl_error err = error_with(again);
    provoke(&all[n], &err);
    /* A text may count or tell the time: then nobody can say whose it is. */
    if (strncmp(again, all[n].expected, TEXT) == 0) all[n].outcome.wrong += all[n].foreign;
    add(out, &all[n].outcome);
  }
}

/* ---- Events ------------------------------------------------------------------------------------------------- */

int64_t flh_elapsed_storm(const fl_plugin* plugin, fl_event start, fl_event end, fl_stream stream, uint64_t count,
                          flh_outcome* out) {
  int64_t least = INT64_MAX;
  for (uint64_t n = 0; n < count; n++) {
    int64_t elapsed = 0;
    note_status(out, plugin->event->record(start, stream, NULL));
    note_status(out, plugin->event->record(end, stream, NULL));
    note_status(out, plugin->stream->sync(stream, UINT64_MAX, NULL));
    note_status(out, plugin->event->elapsed(start, end, &elapsed, NULL));
    out->wrong += elapsed < 0;
    if (elapsed < least) least = elapsed;
  }
  return least;
}
