/* argument_check.c - structs, chains, flags, NULLs and error texts of the reference vendor [LAYOUT, VERSION, ERROR]. */
#include "harness.h"

static fl_device device;
static fl_stream stream;

/* One call that takes a growable struct, with good contents. */
typedef struct {
  uint32_t kind;
  uint32_t smallest;
  fl_status (*call)(void* args, fl_error* err);
  void (*undo)(void); /* of a success */
  size_t flags_at;    /* of a flags word, 0 for none */
  int has_chain;
} shape;

static uint64_t made_base;
static fl_stream made_stream;
static fl_event made_event;
static fl_device made_device;

static fl_status call_alloc(void* args, fl_error* err) { return plugin->memory->alloc(device, args, &made_base, err); }
static void undo_alloc(void) { plugin->memory->free(device, made_base, 64, NULL); }
static fl_status call_stream(void* args, fl_error* err) {
  return plugin->stream->create(device, args, &made_stream, err);
}
static void undo_stream(void) { plugin->stream->destroy(made_stream, NULL); }
static fl_status call_event(void* args, fl_error* err) { return plugin->event->create(device, args, &made_event, err); }
static void undo_event(void) { plugin->event->destroy(made_event, NULL); }
static fl_status call_open(void* args, fl_error* err) { return plugin->device->open(1, args, &made_device, err); }
static void undo_open(void) { plugin->device->close(made_device, NULL); }
static fl_status call_copy(void* args, fl_error* err) { return plugin->memory->copy(stream, args, err); }
static void undo_copy(void) { plugin->stream->sync(stream, UINT64_MAX, NULL); }
static fl_status call_info(void* args, fl_error* err) { return plugin->device->info(device, args, err); }
static void undo_nothing(void) {}

static void try_shape(const shape* one, const void* good) {
  unsigned char args[256];
  memset(args, 0xA5, sizeof args);
  memcpy(args, good, one->smallest);
  uint32_t* head = (uint32_t*)(void*)args;

  head[0] = one->smallest;
  EXPECT(FL_OK, one->call, args);
  one->undo();
  head[0] = one->smallest + 64;
  EXPECT(FL_OK, one->call, args);
  one->undo();
  head[0] = one->smallest - 8;
  EXPECT(FL_INVALID_ARGUMENT, one->call, args);
  head[0] = one->smallest;
  head[1] = one->kind + 1;
  EXPECT(FL_INVALID_ARGUMENT, one->call, args);
  head[1] = one->kind;
  EXPECT(FL_INVALID_ARGUMENT, one->call, NULL);
  for (int bit = 1; bit < 32 && one->flags_at != 0; bit++) {
    uint32_t flags = 1u << bit;
    memcpy(args + one->flags_at, &flags, 4);
    EXPECT(FL_INVALID_ARGUMENT, one->call, args);
    memcpy(args + one->flags_at, (const char*)good + one->flags_at, 4);
  }
  if (one->has_chain) {
    fl_ext last = {sizeof last, 5000, 0, 0, NULL};
    fl_ext first = {sizeof first + 8, 5001, 0, 0, &last};
    const fl_ext* chain = &first;
    memcpy(args + 8, &chain, sizeof chain);
    EXPECT(FL_OK, one->call, args);
    one->undo();
    last.flags = FL_EXT_REQUIRED;
    EXPECT(FL_UNIMPLEMENTED, one->call, args);
    last.flags = 2;
    EXPECT(FL_INVALID_ARGUMENT, one->call, args);
  }
  for (uint32_t at = one->smallest; at < sizeof args; at++) CHECK(args[at] == 0xA5);
}

static void structs_are_judged_by_kind_and_smallest_size(void) {
  uint64_t base = new_block(device, 64);
  static char host[64];
  fl_mem_alloc_args alloc = {sizeof alloc, FL_KIND_MEM_ALLOC_ARGS, NULL, 64, 0, 0, 0};
  fl_stream_create_args create = {sizeof create, FL_KIND_STREAM_CREATE_ARGS, NULL, 0, 0};
  fl_event_create_args event = {sizeof event, FL_KIND_EVENT_CREATE_ARGS, NULL, 0, 0};
  fl_device_open_args open = {sizeof open, FL_KIND_DEVICE_OPEN_ARGS, NULL, ""};
  fl_copy_args copy = to_device(device, base, 0, host, 64);
  fl_device_info info = {.struct_size = sizeof info, .kind = FL_KIND_DEVICE_INFO};
  shape shapes[] = {
      {FL_KIND_MEM_ALLOC_ARGS, FL_SIZE_V1_0_MEM_ALLOC_ARGS, call_alloc, undo_alloc, 36, 1},
      {FL_KIND_STREAM_CREATE_ARGS, FL_SIZE_V1_0_STREAM_CREATE_ARGS, call_stream, undo_stream, 20, 1},
      {FL_KIND_EVENT_CREATE_ARGS, FL_SIZE_V1_0_EVENT_CREATE_ARGS, call_event, undo_event, 16, 1},
      {FL_KIND_DEVICE_OPEN_ARGS, FL_SIZE_V1_0_DEVICE_OPEN_ARGS, call_open, undo_open, 0, 1},
      {FL_KIND_COPY_ARGS, FL_SIZE_V1_0_COPY_ARGS, call_copy, undo_copy, 0, 1},
      {FL_KIND_DEVICE_INFO, FL_SIZE_V1_0_DEVICE_INFO, call_info, undo_nothing, 0, 0},
  };
  const void* goods[] = {&alloc, &create, &event, &open, &copy, &info};
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) try_shape(&shapes[i], goods[i]);
  EXPECT(FL_OK, plugin->memory->free, device, base, 64);
}

static void errors_fit_the_hosts_buffer(void) {
  for (uint64_t capacity = 0; capacity < 80; capacity++) {
    char text[128];
    memset(text, 0x7E, sizeof text);
    fl_error err = {sizeof err, FL_KIND_ERROR, 99, 0, 99, text, capacity, 99};
    CHECK(plugin->stream->query(NULL, &err) == FL_INVALID_ARGUMENT);
    CHECK(err.code == FL_INVALID_ARGUMENT && err.vendor_code == 0);
    uint64_t stored = capacity == 0 ? 0 : err.length + 1;
    CHECK(stored <= capacity && (capacity < 2 || err.length > 0));
    if (capacity > 0) CHECK(strlen(text) == err.length);
    for (uint64_t at = stored; at < sizeof text; at++) CHECK(text[at] == 0x7E);
  }
  char text[64];
  memset(text, 0x7E, sizeof text);
  fl_error err = {sizeof err, FL_KIND_ERROR + 1, 99, 0, 99, text, sizeof text, 99};
  CHECK(plugin->stream->query(stream, &err) == FL_INVALID_ARGUMENT && err.code == 99 && text[0] == 0x7E);
  err.kind = FL_KIND_ERROR;
  err.struct_size = FL_SIZE_V1_0_ERROR - 8;
  CHECK(plugin->stream->query(stream, &err) == FL_INVALID_ARGUMENT && err.code == 99 && text[0] == 0x7E);
  err.struct_size = sizeof err + 64;
  CHECK(plugin->stream->query(stream, &err) == FL_OK && err.code == 99 && err.length == 99 && text[0] == 0x7E);

  /* "unknown option '" and then three-byte characters: never cut inside one. */
  fl_device_open_args open = {sizeof open, FL_KIND_DEVICE_OPEN_ARGS, NULL, "\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC=1"};
  fl_device none = NULL;
  for (uint64_t capacity = 16; capacity < 40; capacity++) {
    char cut[64] = "";
    fl_error wide = {sizeof wide, FL_KIND_ERROR, 0, 0, 0, cut, capacity, 0};
    CHECK(plugin->device->open(1, &open, &none, &wide) == FL_INVALID_ARGUMENT && none == NULL);
    uint64_t in_character = 0;
    for (uint64_t at = 16; at < wide.length && cut[at] != '\''; at++) in_character++;
    CHECK(in_character % 3 == 0);
  }
}

static void nulls_are_refused(void) {
  int32_t number = 0;
  int64_t elapsed = 0;
  uint64_t big = 0;
  fl_event event = new_event(device, FL_EVENT_TIMING);
  fl_mem_alloc_args alloc = {sizeof alloc, FL_KIND_MEM_ALLOC_ARGS, NULL, 64, 0, 0, 0};
  fl_stream_create_args create = {sizeof create, FL_KIND_STREAM_CREATE_ARGS, NULL, 0, 0};
  fl_event_create_args create_event = {sizeof create_event, FL_KIND_EVENT_CREATE_ARGS, NULL, 0, 0};
  fl_device_open_args open = {sizeof open, FL_KIND_DEVICE_OPEN_ARGS, NULL, NULL};
  fl_device_info info = {.struct_size = sizeof info, .kind = FL_KIND_DEVICE_INFO};
  const fl_kernel_table* table = NULL;
  EXPECT(FL_INVALID_ARGUMENT, plugin->device->count, NULL);
  EXPECT(FL_INVALID_ARGUMENT, plugin->device->open, 1, &open, NULL);
  EXPECT(FL_INVALID_ARGUMENT, plugin->device->close, NULL);
  EXPECT(FL_INVALID_ARGUMENT, plugin->device->info, NULL, &info);
  EXPECT(FL_INVALID_ARGUMENT, plugin->device->sync, NULL, 0);
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->alloc, NULL, &alloc, &big);
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->alloc, device, &alloc, NULL);
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->free, NULL, 64, 64);
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->info, NULL, &big, &big);
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->info, device, NULL, &big);
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->info, device, &big, NULL);
  EXPECT(FL_INVALID_ARGUMENT, plugin->memory->fill, NULL, 64, 0, 0, 1, 1);
  EXPECT(FL_INVALID_ARGUMENT, plugin->stream->create, NULL, &create, &stream);
  EXPECT(FL_INVALID_ARGUMENT, plugin->stream->create, device, &create, NULL);
  EXPECT(FL_INVALID_ARGUMENT, plugin->stream->destroy, NULL);
  EXPECT(FL_INVALID_ARGUMENT, plugin->stream->sync, NULL, 0);
  EXPECT(FL_INVALID_ARGUMENT, plugin->stream->host_task, NULL, count_task, NULL);
  EXPECT(FL_INVALID_ARGUMENT, plugin->stream->host_task, stream, NULL, NULL);
  EXPECT(FL_INVALID_ARGUMENT, plugin->stream->wait_event, NULL, event);
  EXPECT(FL_INVALID_ARGUMENT, plugin->stream->wait_event, stream, NULL);
  EXPECT(FL_INVALID_ARGUMENT, plugin->event->create, NULL, &create_event, &event);
  EXPECT(FL_INVALID_ARGUMENT, plugin->event->create, device, &create_event, NULL);
  EXPECT(FL_INVALID_ARGUMENT, plugin->event->destroy, NULL);
  EXPECT(FL_INVALID_ARGUMENT, plugin->event->record, NULL, stream);
  EXPECT(FL_INVALID_ARGUMENT, plugin->event->record, event, NULL);
  EXPECT(FL_INVALID_ARGUMENT, plugin->event->query, NULL);
  EXPECT(FL_INVALID_ARGUMENT, plugin->event->sync, NULL, 0);
  EXPECT(FL_INVALID_ARGUMENT, plugin->event->elapsed, NULL, event, &elapsed);
  EXPECT(FL_INVALID_ARGUMENT, plugin->event->elapsed, event, NULL, &elapsed);
  EXPECT(FL_INVALID_ARGUMENT, plugin->event->elapsed, event, event, NULL);
  EXPECT(FL_INVALID_ARGUMENT, plugin->kernel->kernels, NULL, &table);
  EXPECT(FL_INVALID_ARGUMENT, plugin->kernel->kernels, device, NULL);
  EXPECT(FL_OK, plugin->device->count, &number);
  CHECK(number == 2);
  EXPECT(FL_OK, plugin->event->destroy, event);
}

static void numbers_out_of_range_are_refused(void) {
  fl_stream_create_args create = {sizeof create, FL_KIND_STREAM_CREATE_ARGS, NULL, 2, 0};
  fl_stream made = NULL;
  EXPECT(FL_INVALID_ARGUMENT, plugin->stream->create, device, &create, &made);
  create.priority = -2;
  EXPECT(FL_INVALID_ARGUMENT, plugin->stream->create, device, &create, &made);
  create.priority = -1;
  EXPECT(FL_OK, plugin->stream->create, device, &create, &made);
  EXPECT(FL_OK, plugin->stream->destroy, made);
  fl_mem_alloc_args alloc = {sizeof alloc, FL_KIND_MEM_ALLOC_ARGS, NULL, 64, 0, 1, 0};
  EXPECT(FL_UNIMPLEMENTED, plugin->memory->alloc, device, &alloc, &made_base);
  fl_device_open_args open = {sizeof open, FL_KIND_DEVICE_OPEN_ARGS, NULL, NULL};
  EXPECT(FL_FAILED_PRECONDITION, plugin->device->open, 0, &open, &made_device);
  EXPECT(FL_INVALID_ARGUMENT, plugin->device->open, 2, &open, &made_device);
  EXPECT(FL_INVALID_ARGUMENT, plugin->device->open, -1, &open, &made_device);
  const char* refused[] = {"memory",          "memory=", "memory=1x",    "memory=10",
                           "memory=9999999T", "speed=3", "memory=2M;a=b"};
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
    open.options = refused[i];
    EXPECT(FL_INVALID_ARGUMENT, plugin->device->open, 1, &open, &made_device);
  }
  open.options = "memory=2MiB;";
  EXPECT(FL_OK, plugin->device->open, 1, &open, &made_device);
  uint64_t left = 0;
  uint64_t total = 0;
  EXPECT(FL_OK, plugin->memory->info, made_device, &left, &total);
  CHECK(left == 2 << 20 && total == 2 << 20);
  EXPECT(FL_OK, plugin->device->close, made_device);
  const fl_extension* extension = NULL;
  EXPECT(FL_UNIMPLEMENTED, plugin->get_extension, "fl.ccl", 0, &extension);
  EXPECT(FL_UNIMPLEMENTED, plugin->get_extension, "fl.fault", 2, &extension);
  EXPECT(FL_INVALID_ARGUMENT, plugin->get_extension, NULL, 0, &extension);
  CHECK(extension == NULL);
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  load(argv[1]);
  device = open_device(0);
  stream = new_stream(device);
  structs_are_judged_by_kind_and_smallest_size();
  errors_fit_the_hosts_buffer();
  nulls_are_refused();
  numbers_out_of_range_are_refused();
  EXPECT(FL_OK, plugin->stream->destroy, stream);
  EXPECT(FL_OK, plugin->device->close, device);
  CHECK(plugin->shutdown(NULL) == FL_OK);
  return 0;
}
