/*
 * stress_check.c - many threads at once on streams, events, memory and host tasks of two devices; made to be run under
 * ASan, UBSan and TSan. What every thread computes has one right answer, which is checked.
 */
#include "harness.h"

enum { THREADS = 4, ROUNDS = 60, DEPTH = 12, SHARED_EVENTS = 3, FLOATS = 300 };

static fl_device devices[2];
static const fl_kernel* add;
static fl_event shared_events[2][SHARED_EVENTS];
static pthread_rwlock_t record_locks[2][SHARED_EVENTS]; /* record is exclusive, waits are not [FL-THREAD-002] */
static fl_stream common[2];                             /* all threads submit to these */
static atomic_int tasks_submitted;
static counter tasks;

static fl_tensor vector(int32_t device, uint64_t base, uint64_t bytes, const int64_t* sizes, const int64_t* strides) {
  fl_tensor tensor = {sizeof tensor, FL_KIND_TENSOR, base,         0, bytes,  sizes,
                      strides,       sizes[0],       FL_DTYPE_F32, 1, device, 0};
  return tensor;
}

/* value += step, as a kernel on the stream. */
static void add_on(fl_stream stream, int32_t device, uint64_t value, uint64_t step) {
  int64_t sizes[1] = {FLOATS};
  int64_t strides[1] = {1};
  fl_tensor self = vector(device, value, FLOATS * 4, sizes, strides);
  fl_tensor other = vector(device, step, FLOATS * 4, sizes, strides);
  fl_arg args[3] = {{FL_TAG_TENSOR, 0, 0, {.tensor = &self}},
                    {FL_TAG_TENSOR, 0, 0, {.tensor = &other}},
                    {FL_TAG_FLOAT, 0, 0, {.f = 1.0}}};
  const fl_tensor* outs[1] = {&self};
  fl_call call = {sizeof call, FL_KIND_CALL, NULL, args, outs, 3, 1, 0, 0, 0, 0};
  EXPECT(FL_OK, add->run, add, stream, &call);
}

static void submit_task(fl_stream stream) {
  EXPECT(FL_OK, plugin->stream->host_task, stream, count_task, &tasks);
  atomic_fetch_add(&tasks_submitted, 1);
}

static void touch_shared_events(fl_stream stream, int device, unsigned* seed) {
  int slot = (int)(rand_r(seed) % SHARED_EVENTS);
  pthread_rwlock_wrlock(&record_locks[device][slot]);
  EXPECT(FL_OK, plugin->event->record, shared_events[device][slot], stream);
  pthread_rwlock_unlock(&record_locks[device][slot]);
  int other = (int)(rand_r(seed) % 2);
  slot = (int)(rand_r(seed) % SHARED_EVENTS);
  pthread_rwlock_rdlock(&record_locks[other][slot]);
  EXPECT(FL_OK, plugin->stream->wait_event, stream, shared_events[other][slot]);
  fl_status status = plugin->event->query(shared_events[other][slot], NULL);
  CHECK(status == FL_OK || status == FL_NOT_READY);
  if (rand_r(seed) % 4 == 0) EXPECT(FL_OK, plugin->event->sync, shared_events[other][slot], UINT64_MAX);
  pthread_rwlock_unlock(&record_locks[other][slot]);
}

/* A value goes from one device to the other and back, a kernel adds one on each visit, events hold the order. */
static void one_round(unsigned* seed) {
  fl_stream streams[2];
  fl_event arrived[2];
  uint64_t values[2], ones[2];
  for (int d = 0; d < 2; d++) {
    streams[d] = new_stream(devices[d]);
    arrived[d] = new_event(devices[d], FL_EVENT_TIMING);
    values[d] = new_block(devices[d], FLOATS * 4);
    ones[d] = new_block(devices[d], FLOATS * 4);
    float one = 1.0f;
    uint32_t bits = 0;
    memcpy(&bits, &one, 4);
    EXPECT(FL_OK, plugin->memory->fill, streams[d], ones[d], 0, bits, 4, FLOATS);
    EXPECT(FL_OK, plugin->memory->fill, streams[d], values[d], 0, 0, 8, FLOATS / 2);
  }
  for (int step = 0; step < DEPTH; step++) {
    int d = step % 2;
    add_on(streams[d], d, values[d], ones[d]);
    submit_task(streams[d]);
    if (rand_r(seed) % 3 == 0) touch_shared_events(streams[d], d, seed);
    if (rand_r(seed) % 3 == 0) submit_task(common[d]);
    EXPECT(FL_OK, plugin->event->record, arrived[d], streams[d]);
    EXPECT(FL_OK, plugin->stream->wait_event, streams[1 - d], arrived[d]);
    fl_copy_args args = between(devices[1 - d], values[1 - d], 0, devices[d], values[d], 0, FLOATS * 4);
    EXPECT(FL_OK, plugin->memory->copy, streams[1 - d], &args);
  }
  /* The other stream must be done with our memory before it is freed: the last copy waits for all that came before. */
  float result[FLOATS];
  download(streams[DEPTH % 2], devices[DEPTH % 2], values[DEPTH % 2], result, sizeof result);
  for (int i = 0; i < FLOATS; i++) CHECK(result[i] == (float)DEPTH);
  if (rand_r(seed) % 2 == 0) {
    fl_status status = plugin->device->sync(devices[rand_r(seed) % 2], UINT64_MAX, NULL);
    CHECK(status == FL_OK || status == FL_ASYNC_FAILURE); /* streams of fail() are among those waited for */
  }
  for (int d = 0; d < 2; d++) {
    submit_task(streams[d]);
    EXPECT(FL_OK, plugin->event->record, arrived[d], streams[d]);
    EXPECT(FL_OK, plugin->event->destroy, arrived[d]);
    EXPECT(FL_OK, plugin->stream->destroy, streams[d]);
    EXPECT(FL_OK, plugin->memory->free, devices[d], values[d], FLOATS * 4);
    EXPECT(FL_OK, plugin->memory->free, devices[d], ones[d], FLOATS * 4);
  }
}

static void* work(void* argument) {
  unsigned seed = (unsigned)(uintptr_t)argument;
  for (int round = 0; round < ROUNDS; round++) one_round(&seed);
  return NULL;
}

static void* allocate(void* argument) {
  unsigned seed = (unsigned)(uintptr_t)argument;
  uint64_t bases[16] = {0};
  for (int i = 0; i < 4000; i++) {
    int slot = (int)(rand_r(&seed) % 16);
    uint64_t bytes = (uint64_t)slot * 5000 + 100;
    if (bases[slot] == 0) {
      bases[slot] = new_block(devices[0], bytes);
    } else {
      EXPECT(FL_OK, plugin->memory->free, devices[0], bases[slot], bytes);
      bases[slot] = 0;
    }
  }
  for (int slot = 0; slot < 16; slot++) {
    if (bases[slot] != 0) EXPECT(FL_OK, plugin->memory->free, devices[0], bases[slot], (uint64_t)slot * 5000 + 100);
  }
  return NULL;
}

/* Streams that fail while others work. */
static void* fail(void* argument) {
  const fl_extension* found = NULL;
  EXPECT(FL_OK, plugin->get_extension, "fl.fault", 1, &found);
  const fl_fault_api* fault = (const fl_fault_api*)found;
  (void)argument;
  for (int i = 0; i < ROUNDS; i++) {
    fl_stream failing = new_stream(devices[i % 2]);
    fl_stream waiting = new_stream(devices[1 - i % 2]);
    fl_event event = new_event(devices[i % 2], 0);
    uint64_t base = new_block(devices[i % 2], 64);
    counter counted = {0, 0};
    EXPECT(FL_OK, fault->fail_next, failing, FL_ASYNC_FAILURE);
    plugin->memory->fill(failing, base, 0, 0, 8, 8, NULL);
    fl_status task = plugin->stream->host_task(failing, count_task, &counted, NULL);
    plugin->event->record(event, failing, NULL);
    plugin->stream->wait_event(waiting, event, NULL);
    EXPECT(FL_ASYNC_FAILURE, plugin->stream->sync, waiting, UINT64_MAX);
    EXPECT(FL_ASYNC_FAILURE, plugin->stream->sync, failing, UINT64_MAX);
    CHECK(atomic_load(&counted.calls) == (task == FL_OK));
    EXPECT(FL_OK, plugin->event->destroy, event);
    EXPECT(FL_OK, plugin->stream->destroy, failing);
    EXPECT(FL_OK, plugin->stream->destroy, waiting);
    EXPECT(FL_OK, plugin->memory->free, devices[i % 2], base, 64);
  }
  return NULL;
}

static void find_add(void) {
  const fl_kernel_table* table = NULL;
  EXPECT(FL_OK, plugin->kernel->kernels, devices[0], &table);
  for (uint32_t i = 0; i < table->count; i++) {
    const fl_kernel* entry =
        (const fl_kernel*)(const void*)((const char*)table->entries + (size_t)i * table->entry_stride);
    if (strcmp(entry->op, "aten::add.Tensor") == 0) add = entry;
  }
  CHECK(add != NULL);
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  alarm(300);
  load(argv[1]);
  uint64_t before[2] = {0, 0};
  uint64_t after = 0;
  uint64_t total = 0;
  for (int d = 0; d < 2; d++) {
    devices[d] = open_device(d);
    EXPECT(FL_OK, plugin->memory->info, devices[d], &before[d], &total);
    common[d] = new_stream(devices[d]);
    for (int slot = 0; slot < SHARED_EVENTS; slot++) {
      shared_events[d][slot] = new_event(devices[d], 0);
      pthread_rwlock_init(&record_locks[d][slot], NULL);
    }
  }
  find_add();
  pthread_t threads[THREADS + 2];
  for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void*)(i + 1));
  pthread_create(&threads[THREADS], NULL, allocate, (void*)(uintptr_t)77);
  pthread_create(&threads[THREADS + 1], NULL, fail, NULL);
  for (int i = 0; i < THREADS + 2; i++) pthread_join(threads[i], NULL);
  for (int d = 0; d < 2; d++) {
    EXPECT(FL_OK, plugin->device->sync, devices[d], UINT64_MAX);
    for (int slot = 0; slot < SHARED_EVENTS; slot++) EXPECT(FL_OK, plugin->event->destroy, shared_events[d][slot]);
    EXPECT(FL_OK, plugin->stream->destroy, common[d]);
    EXPECT(FL_OK, plugin->memory->info, devices[d], &after, &total);
    CHECK(after == before[d]);
    EXPECT(FL_OK, plugin->device->close, devices[d]);
  }
  CHECK(atomic_load(&tasks.calls) == atomic_load(&tasks_submitted) && atomic_load(&tasks.status) == FL_OK);
  return 0;
}
