/*
 * harness.h - what the C tests of the reference vendor share: loading a library, checks that name their line, and
 * short forms of the calls. A test program takes the library's path and exits 0 when every check held.
 */
#ifndef FL_TESTS_REFERENCE_HARNESS_H
#define FL_TESTS_REFERENCE_HARNESS_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "torch_fl/plugin.h"

static const fl_plugin* plugin;
static int is_inline; /* the devices of this library execute INLINE */

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      _exit(1);                                                                     \
    }                                                                               \
  } while (0)

static inline void expect_status(fl_status got, fl_status wanted, const fl_error* err, const char* file, int line) {
  if (got == wanted && (got == FL_OK || (err->length > 0 && err->code == got))) return;
  fprintf(stderr, "%s:%d: status %d, not %d (%s)\n", file, line, (int)got, (int)wanted, err->message);
  _exit(1);
}

/* EXPECT(FL_OK, plugin->stream->sync, stream, 0): the call with an err appended; failures must carry text. */
#define EXPECT(wanted, function, ...)                                                                     \
  do {                                                                                                    \
    char expect_text[256] = "";                                                                           \
    fl_error expect_err = {sizeof(fl_error), FL_KIND_ERROR, 0, 0, 0, expect_text, sizeof expect_text, 0}; \
    fl_status expect_got = function(__VA_ARGS__, &expect_err);                                            \
    expect_status(expect_got, wanted, &expect_err, __FILE__, __LINE__);                                   \
  } while (0)

static inline void load(const char* path) {
  void* library = dlopen(path, RTLD_LOCAL | RTLD_NOW);
  if (library == NULL) fprintf(stderr, "%s\n", dlerror());
  CHECK(library != NULL);
  fl_plugin_query_fn query = (fl_plugin_query_fn)(uintptr_t)dlsym(library, "fl_plugin_query_v1");
  CHECK(query != NULL);
  fl_host host = {sizeof host, FL_KIND_HOST, 0, 0, "tests", NULL, NULL};
  EXPECT(FL_OK, query, &host, &plugin);
  is_inline = strcmp(plugin->name, "reference_inline") == 0;
}

static inline fl_device open_device(int32_t index) {
  fl_device_open_args args = {sizeof args, FL_KIND_DEVICE_OPEN_ARGS, NULL, NULL};
  fl_device device = NULL;
  EXPECT(FL_OK, plugin->device->open, index, &args, &device);
  return device;
}

static inline fl_stream new_stream(fl_device device) {
  fl_stream_create_args args = {sizeof args, FL_KIND_STREAM_CREATE_ARGS, NULL, 0, 0};
  fl_stream stream = NULL;
  EXPECT(FL_OK, plugin->stream->create, device, &args, &stream);
  return stream;
}

static inline fl_event new_event(fl_device device, uint32_t flags) {
  fl_event_create_args args = {sizeof args, FL_KIND_EVENT_CREATE_ARGS, NULL, flags, 0};
  fl_event event = NULL;
  EXPECT(FL_OK, plugin->event->create, device, &args, &event);
  return event;
}

static inline uint64_t new_block(fl_device device, uint64_t bytes) {
  fl_mem_alloc_args args = {sizeof args, FL_KIND_MEM_ALLOC_ARGS, NULL, bytes, 0, FL_ALLOC_DEVICE, 0};
  uint64_t base = 0;
  EXPECT(FL_OK, plugin->memory->alloc, device, &args, &base);
  return base;
}

static inline fl_copy_args between(fl_device dst_device, uint64_t dst_base, uint64_t dst_offset, fl_device src_device,
                                   uint64_t src_base, uint64_t src_offset, uint64_t bytes) {
  fl_copy_args args;
  memset(&args, 0, sizeof args);
  args.struct_size = sizeof args;
  args.kind = FL_KIND_COPY_ARGS;
  args.dst_space = dst_device != NULL ? FL_SPACE_DEVICE : FL_SPACE_HOST;
  args.src_space = src_device != NULL ? FL_SPACE_DEVICE : FL_SPACE_HOST;
  args.dst_device = dst_device;
  args.src_device = src_device;
  args.dst_base = dst_base;
  args.dst_offset = dst_offset;
  args.src_base = src_base;
  args.src_offset = src_offset;
  args.bytes = bytes;
  return args;
}

static inline fl_copy_args to_device(fl_device device, uint64_t base, uint64_t offset, const void* source,
                                     uint64_t bytes) {
  return between(device, base, offset, NULL, (uint64_t)(uintptr_t)source, 0, bytes);
}

static inline fl_copy_args to_host(fl_device device, uint64_t base, uint64_t offset, void* destination,
                                   uint64_t bytes) {
  return between(NULL, (uint64_t)(uintptr_t)destination, 0, device, base, offset, bytes);
}

static inline void upload(fl_stream stream, fl_device device, uint64_t base, const void* source, uint64_t bytes) {
  fl_copy_args args = to_device(device, base, 0, source, bytes);
  EXPECT(FL_OK, plugin->memory->copy, stream, &args);
}

/* Copies back and waits. */
static inline void download(fl_stream stream, fl_device device, uint64_t base, void* destination, uint64_t bytes) {
  fl_copy_args args = to_host(device, base, 0, destination, bytes);
  EXPECT(FL_OK, plugin->memory->copy, stream, &args);
  EXPECT(FL_OK, plugin->stream->sync, stream, UINT64_MAX);
}

/* A host task that holds its stream until opened. */
typedef struct {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int entered;
  int open;
} gate;
#define GATE_INITIALIZER {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0}

static inline void gate_task(void* arg, fl_status status) {
  gate* held = arg;
  (void)status;
  pthread_mutex_lock(&held->mutex);
  held->entered = 1;
  pthread_cond_broadcast(&held->changed);
  while (!held->open) pthread_cond_wait(&held->changed, &held->mutex);
  pthread_mutex_unlock(&held->mutex);
}

static inline void gate_await_entry(gate* held) {
  pthread_mutex_lock(&held->mutex);
  while (!held->entered) pthread_cond_wait(&held->changed, &held->mutex);
  pthread_mutex_unlock(&held->mutex);
}

static inline void gate_open(gate* held) {
  pthread_mutex_lock(&held->mutex);
  held->open = 1;
  pthread_cond_broadcast(&held->changed);
  pthread_mutex_unlock(&held->mutex);
}

/* A host task that counts itself and keeps the status it got. */
typedef struct {
  atomic_int calls;
  atomic_int status;
} counter;

static inline void count_task(void* arg, fl_status status) {
  counter* counted = arg;
  atomic_store(&counted->status, (int)status);
  atomic_fetch_add(&counted->calls, 1);
}

#endif /* FL_TESTS_REFERENCE_HARNESS_H */
