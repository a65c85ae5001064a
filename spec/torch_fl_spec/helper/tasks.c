/* Host tasks: gates and records. Plugins call them on their own threads, so they touch no Python. */
#define _GNU_SOURCE
#include "torch_fl_helper.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ENTERED = 1, OPEN = 2, DONE = 4 };

struct flh_gate {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  uint32_t bits;
  fl_status status;
};

uint64_t flh_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

flh_gate* flh_gate_new(void) {
  flh_gate* gate = calloc(1, sizeof(*gate));
  if (!gate) return NULL;
  pthread_mutex_init(&gate->mutex, NULL);
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&gate->changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  gate->status = -1;
  return gate;
}

void flh_gate_task(void* argument, fl_status status) {
  flh_gate* gate = argument;
  pthread_mutex_lock(&gate->mutex);
  gate->bits |= ENTERED;
  gate->status = status;
  pthread_cond_broadcast(&gate->changed);
  while (!(gate->bits & OPEN)) pthread_cond_wait(&gate->changed, &gate->mutex);
  gate->bits |= DONE;
  pthread_cond_broadcast(&gate->changed);
  pthread_mutex_unlock(&gate->mutex);
}

void flh_gate_open(flh_gate* gate) {
  pthread_mutex_lock(&gate->mutex);
  gate->bits |= OPEN;
  pthread_cond_broadcast(&gate->changed);
  pthread_mutex_unlock(&gate->mutex);
}

uint32_t flh_gate_state(flh_gate* gate, fl_status* status) {
  pthread_mutex_lock(&gate->mutex);
  uint32_t bits = gate->bits;
  *status = gate->status;
  pthread_mutex_unlock(&gate->mutex);
  return bits;
}

int32_t flh_gate_wait(flh_gate* gate, uint32_t bits, uint64_t timeout_ns) {
  uint64_t until = flh_now() + timeout_ns;
  struct timespec deadline = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
  pthread_mutex_lock(&gate->mutex);
  int late = 0;
  while ((gate->bits & bits) != bits && !late)
    late = pthread_cond_timedwait(&gate->changed, &gate->mutex, &deadline) != 0;
  int32_t reached = (gate->bits & bits) == bits;
  pthread_mutex_unlock(&gate->mutex);
  return reached;
}

/* A ticket is its own block in a list, since a plugin may hold any number of them at a time. */
typedef struct ticket {
  struct flh_record* record;
  struct ticket* next;
  int64_t value;
} ticket;

struct flh_record {
  pthread_mutex_t mutex;
  ticket* tickets;
  flh_entry* entries;
  uint64_t capacity;
  uint64_t count; /* may exceed capacity: tasks are counted even where there is no room to keep them */
  atomic_uint inside; /* tasks that have begun and not ended */
  atomic_ulong overlaps;
};

flh_record* flh_record_new(uint64_t capacity) {
  flh_record* record = calloc(1, sizeof(*record));
  if (!record) return NULL;
  record->entries = calloc(capacity, sizeof(*record->entries));
  if (!record->entries) {
    free(record);
    return NULL;
  }
  pthread_mutex_init(&record->mutex, NULL);
  record->capacity = capacity;
  return record;
}

void* flh_record_ticket(flh_record* record, int64_t value) {
  ticket* added = calloc(1, sizeof(*added));
  if (!added) return NULL;
  added->record = record;
  added->value = value;
  pthread_mutex_lock(&record->mutex);
  added->next = record->tickets;
  record->tickets = added;
  pthread_mutex_unlock(&record->mutex);
  return added;
}

void flh_record_task(void* argument, fl_status status) {
  ticket* given = argument;
  flh_record* record = given->record;
  flh_entry entry = {given->value, status, 0};
  pthread_mutex_lock(&record->mutex);
  if (record->count < record->capacity) record->entries[record->count] = entry;
  record->count++;
  pthread_mutex_unlock(&record->mutex);
}

void flh_alone_task(void* argument, fl_status status) {
  flh_record* record = ((ticket*)argument)->record;
  if (atomic_fetch_add(&record->inside, 1) != 0) atomic_fetch_add(&record->overlaps, 1);
  for (volatile int spin = 0; spin < 200; spin++) continue;
  flh_record_task(argument, status);
  atomic_fetch_sub(&record->inside, 1);
}

uint64_t flh_record_overlaps(flh_record* record) { return atomic_load(&record->overlaps); }

uint64_t flh_record_count(flh_record* record) {
  pthread_mutex_lock(&record->mutex);
  uint64_t count = record->count;
  pthread_mutex_unlock(&record->mutex);
  return count;
}

uint64_t flh_record_read(flh_record* record, flh_entry* out, uint64_t capacity) {
  pthread_mutex_lock(&record->mutex);
  uint64_t count = record->count < record->capacity ? record->count : record->capacity;
  if (count > capacity) count = capacity;
  memcpy(out, record->entries, count * sizeof(*out));
  pthread_mutex_unlock(&record->mutex);
  return count;
}
