/* Cycles of calls that leave nothing behind when the plugin keeps nothing: work that completes, objects destroyed while
 * their work is pending, and calls that are refused [FL-THREAD-005, FL-ERROR-003]. */
#include "torch_fl_helper.h"

#include <stdlib.h>

enum { SYNC_EVERY = 64 };

typedef struct bench {
  const fl_plugin* plugin;
  fl_device device;
  fl_stream stream;
  uint64_t left, right, bytes; /* two blocks of `bytes` */
  char* host;                  /* `bytes` of ordinary memory */
  flh_outcome* outcome;
} bench;

static void must(bench* self, fl_status status) {
  self->outcome->calls++;
  if (status == FL_OK) return;
  if (self->outcome->failures++ == 0) self->outcome->first_failure = status;
}

static void must_not(bench* self, fl_status status) {
  self->outcome->calls++;
  self->outcome->wrong += status == FL_OK;
}

static void nothing(void* argument, fl_status status) {
  (void)argument;
  (void)status;
}

static fl_stream new_stream(bench* self) {
  fl_stream_create_args args = {sizeof(args), FL_KIND_STREAM_CREATE_ARGS, NULL, 0, 0};
  fl_stream stream = NULL;
  must(self, self->plugin->stream->create(self->device, &args, &stream, NULL));
  return stream;
}

static fl_event new_event(bench* self) {
  fl_event_create_args args = {sizeof(args), FL_KIND_EVENT_CREATE_ARGS, NULL, 0, 0};
  fl_event event = NULL;
  must(self, self->plugin->event->create(self->device, &args, &event, NULL));
  return event;
}

static uint64_t new_block(bench* self) {
  fl_mem_alloc_args args = {sizeof(args), FL_KIND_MEM_ALLOC_ARGS, NULL, self->bytes, 0, FL_ALLOC_DEVICE, 0};
  uint64_t base = 0;
  must(self, self->plugin->memory->alloc(self->device, &args, &base, NULL));
  return base;
}

static fl_copy_args copy_args(const bench* self, int from_host) {
  fl_copy_args args = {.struct_size = sizeof(args), .kind = FL_KIND_COPY_ARGS, .dst_space = FL_SPACE_DEVICE};
  args.dst_device = self->device;
  args.dst_base = self->left;
  args.src_space = from_host ? FL_SPACE_HOST : FL_SPACE_DEVICE;
  args.src_device = from_host ? NULL : self->device;
  args.src_base = from_host ? (uint64_t)(uintptr_t)self->host : self->right;
  args.bytes = self->bytes;
  return args;
}

/* One operation of each kind but a kernel, and calls that only ask. */
static void work(bench* self, fl_stream stream, fl_event event) {
  const fl_plugin* plugin = self->plugin;
  fl_copy_args up = copy_args(self, 1);
  fl_copy_args within = copy_args(self, 0);
  must(self, plugin->memory->copy(stream, &up, NULL));
  must(self, plugin->memory->copy(stream, &within, NULL));
  must(self, plugin->memory->fill(stream, self->left, 0, 7, 1, self->bytes, NULL));
  must(self, plugin->stream->host_task(stream, nothing, NULL, NULL));
  must(self, plugin->event->record(event, stream, NULL));
  must(self, plugin->stream->wait_event(stream, event, NULL));
  const fl_kernel_table* table = NULL;
  fl_device_info info = {.struct_size = sizeof(info), .kind = FL_KIND_DEVICE_INFO};
  uint64_t room = 0;
  uint64_t total = 0;
  must(self, plugin->kernel->kernels(self->device, &table, NULL));
  must(self, plugin->device->info(self->device, &info, NULL));
  must(self, plugin->memory->info(self->device, &room, &total, NULL));
}

/* An event of its own each time, so that whatever a record keeps is given up with the event. */
static void completed(bench* self) {
  fl_event event = new_event(self);
  if (event == NULL) return;
  work(self, self->stream, event);
  must(self, self->plugin->event->destroy(event, NULL));
}

static void destroyed_busy(bench* self) {
  fl_stream stream = new_stream(self);
  fl_event event = new_event(self);
  if (stream == NULL || event == NULL) return;
  work(self, stream, event);
  must(self, self->plugin->stream->destroy(stream, NULL));
  must(self, self->plugin->event->destroy(event, NULL));
}

static void refused(bench* self) {
  const fl_plugin* plugin = self->plugin;
  fl_ext required = {sizeof(required), FL_KIND_EXT_NODE_FIRST + 999, FL_EXT_REQUIRED, 0, NULL};
  fl_stream stream = NULL;
  fl_event event = NULL;
  uint64_t base = 0;
  const fl_extension* extension = NULL;
  fl_stream_create_args streams[] = {{sizeof(streams[0]), FL_KIND_STREAM_CREATE_ARGS, NULL, INT32_MAX, 0},
                                     {sizeof(streams[0]), FL_KIND_STREAM_CREATE_ARGS, NULL, INT32_MIN, 0},
                                     {sizeof(streams[0]), FL_KIND_STREAM_CREATE_ARGS, NULL, 0, 1 << 30},
                                     {sizeof(streams[0]), FL_KIND_STREAM_CREATE_ARGS, &required, 0, 0}};
  for (int n = 0; n < 4; n++) must_not(self, plugin->stream->create(self->device, &streams[n], &stream, NULL));
  fl_event_create_args events[] = {{sizeof(events[0]), FL_KIND_EVENT_CREATE_ARGS, NULL, 1 << 30, 0},
                                   {sizeof(events[0]), FL_KIND_EVENT_CREATE_ARGS, &required, 0, 0}};
  for (int n = 0; n < 2; n++) must_not(self, plugin->event->create(self->device, &events[n], &event, NULL));
  fl_mem_alloc_args blocks[] = {{sizeof(blocks[0]), FL_KIND_MEM_ALLOC_ARGS, NULL, 4096, 0, FL_ALLOC_DEVICE, 1 << 30},
                                {sizeof(blocks[0]), FL_KIND_MEM_ALLOC_ARGS, &required, 4096, 0, FL_ALLOC_DEVICE, 0},
                                {sizeof(blocks[0]), FL_KIND_MEM_ALLOC_ARGS, NULL, 4096, 3, FL_ALLOC_DEVICE, 0},
                                {sizeof(blocks[0]), FL_KIND_MEM_ALLOC_ARGS, NULL, 4096, 0, 9, 0}};
  for (int n = 0; n < 4; n++) must_not(self, plugin->memory->alloc(self->device, &blocks[n], &base, NULL));
  fl_copy_args copies[4];
  for (int n = 0; n < 4; n++) copies[n] = copy_args(self, n < 2);
  copies[0].bytes = 0;
  copies[1].next = &required;
  copies[2].dst_base = copies[2].src_base; /* onto itself */
  copies[3].bytes = self->bytes + 1;
  for (int n = 0; n < 4; n++) must_not(self, plugin->memory->copy(self->stream, &copies[n], NULL));
  must_not(self, plugin->memory->fill(self->stream, self->left, 0, 7, 3, 1, NULL));
  must_not(self, plugin->memory->fill(self->stream, self->left, 0, 7, 1, self->bytes + 1, NULL));
  must_not(self, plugin->get_extension("fl.none-of-this-name", 1, &extension, NULL));
}

void flh_work_cycle(const fl_plugin* plugin, fl_device device, uint64_t what, uint64_t count, uint64_t bytes,
                    flh_outcome* out) {
  bench self = {.plugin = plugin, .device = device, .bytes = bytes, .host = calloc(1, bytes), .outcome = out};
  self.stream = new_stream(&self);
  self.left = new_block(&self);
  self.right = new_block(&self);
  for (uint64_t n = 0; n < count && out->failures == 0; n++) {
    if (what == FLH_WORK) completed(&self);
    if (what == FLH_WORK_DESTROYED) destroyed_busy(&self);
    if (what == FLH_WORK_REFUSED) refused(&self);
    if (n % SYNC_EVERY == 0) must(&self, plugin->device->sync(device, UINT64_MAX, NULL));
  }
  must(&self, plugin->device->sync(device, UINT64_MAX, NULL));
  if (self.left) must(&self, plugin->memory->free(device, self.left, bytes, NULL));
  if (self.right) must(&self, plugin->memory->free(device, self.right, bytes, NULL));
  if (self.stream) must(&self, plugin->stream->destroy(self.stream, NULL));
  free(self.host);
}
