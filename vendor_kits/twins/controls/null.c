/*
 * null.c - the null plugin: every function says FL_OK and does nothing.
 *
 * It claims what the reference vendor claims, its kernel table included, and gives handles and addresses that are well
 * formed, so that nothing but its silence can give it away. Takes the place of the reference vendor's plugin.c.
 */
#include <stdlib.h>

#include "core.h"

#define TOTAL_BYTES (8ull << 30)

static atomic_uint_fast64_t next_number = 1;

/* A pointer that no other call has given; nobody follows it. */
static void* fresh_handle(void) { return (void*)(uintptr_t)(atomic_fetch_add(&next_number, 1) << 12); }

static fl_status device_count(int32_t* out, fl_error* err) {
  (void)err;
  if (out != NULL) *out = 2;
  return FL_OK;
}

static fl_status device_open(int32_t index, const fl_device_open_args* args, fl_device* out, fl_error* err) {
  (void)index, (void)args, (void)err;
  if (out != NULL) *out = fresh_handle();
  return FL_OK;
}

static fl_status device_close(fl_device device, fl_error* err) {
  (void)device, (void)err;
  return FL_OK;
}

static fl_status device_info(fl_device device, fl_device_info* out, fl_error* err) {
  (void)err;
  if (out == NULL) return FL_OK;
  uint64_t number = (uint64_t)(uintptr_t)device;
  out->name = "null device";
  memset(out->uuid, 0, sizeof out->uuid);
  memcpy(out->uuid, &number, sizeof number);
  out->numa_node = -1;
  out->execution_model = FL_EXEC_ASYNC;
  out->independent_streams = 1;
  out->priority_least = REF_PRIORITY_LEAST;
  out->priority_greatest = REF_PRIORITY_GREATEST;
  out->address_model = FL_ADDRESS_HANDLE;
  out->alloc_align = 64;
  out->max_align = REF_MAX_ALIGN;
  out->alloc_may_wait = 0;
  out->host_accessible = 0;
  out->total_bytes = TOTAL_BYTES;
  out->timer_resolution_ns = 1;
  return FL_OK;
}

static fl_status device_sync(fl_device device, uint64_t timeout_ns, fl_error* err) {
  (void)device, (void)timeout_ns, (void)err;
  return FL_OK;
}

/* Addresses that are aligned and overlap nothing: a block of its own for each call. */
static fl_status mem_alloc(fl_device device, const fl_mem_alloc_args* args, uint64_t* out_base, fl_error* err) {
  (void)device, (void)args, (void)err;
  if (out_base != NULL) *out_base = atomic_fetch_add(&next_number, 1) << 40;
  return FL_OK;
}

static fl_status mem_free(fl_device device, uint64_t base, uint64_t bytes, fl_error* err) {
  (void)device, (void)base, (void)bytes, (void)err;
  return FL_OK;
}

static fl_status mem_info(fl_device device, uint64_t* out_free, uint64_t* out_total, fl_error* err) {
  (void)device, (void)err;
  if (out_free != NULL) *out_free = TOTAL_BYTES;
  if (out_total != NULL) *out_total = TOTAL_BYTES;
  return FL_OK;
}

static fl_status copy(fl_stream stream, const fl_copy_args* args, fl_error* err) {
  (void)stream, (void)args, (void)err;
  return FL_OK;
}

static fl_status fill(fl_stream stream, uint64_t base, uint64_t offset, uint64_t pattern, uint32_t pattern_bytes,
                      uint64_t count, fl_error* err) {
  (void)stream, (void)base, (void)offset, (void)pattern, (void)pattern_bytes, (void)count, (void)err;
  return FL_OK;
}

static fl_status stream_create(fl_device device, const fl_stream_create_args* args, fl_stream* out, fl_error* err) {
  (void)device, (void)args, (void)err;
  if (out != NULL) *out = fresh_handle();
  return FL_OK;
}

static fl_status stream_ok(fl_stream stream, fl_error* err) {
  (void)stream, (void)err;
  return FL_OK;
}

static fl_status stream_sync(fl_stream stream, uint64_t timeout_ns, fl_error* err) {
  (void)stream, (void)timeout_ns, (void)err;
  return FL_OK;
}

static fl_status host_task(fl_stream stream, fl_host_fn fn, void* arg, fl_error* err) {
  (void)stream, (void)fn, (void)arg, (void)err;
  return FL_OK;
}

static fl_status wait_event(fl_stream stream, fl_event event, fl_error* err) {
  (void)stream, (void)event, (void)err;
  return FL_OK;
}

static fl_status event_create(fl_device device, const fl_event_create_args* args, fl_event* out, fl_error* err) {
  (void)device, (void)args, (void)err;
  if (out != NULL) *out = fresh_handle();
  return FL_OK;
}

static fl_status event_ok(fl_event event, fl_error* err) {
  (void)event, (void)err;
  return FL_OK;
}

static fl_status event_record(fl_event event, fl_stream stream, fl_error* err) {
  (void)event, (void)stream, (void)err;
  return FL_OK;
}

static fl_status event_sync(fl_event event, uint64_t timeout_ns, fl_error* err) {
  (void)event, (void)timeout_ns, (void)err;
  return FL_OK;
}

static fl_status event_elapsed(fl_event start, fl_event end, int64_t* out_ns, fl_error* err) {
  (void)start, (void)end, (void)err;
  if (out_ns != NULL) *out_ns = 0;
  return FL_OK;
}

/* ---- Kernels: the reference vendor's claims, kept by nobody ------------------------------------------------------ */

static pthread_once_t table_once = PTHREAD_ONCE_INIT;
static fl_kernel_table table;

static fl_status plan(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out, fl_error* err) {
  (void)kernel, (void)device, (void)call, (void)err;
  if (out != NULL) fl_plan_set(out, 0, 0, 0);
  return FL_OK;
}

static fl_status run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  (void)kernel, (void)stream, (void)call, (void)err;
  return FL_OK;
}

static void make_table(void) {
  const fl_kernel_table* claimed = NULL;
  if (ref_kernels(fresh_handle(), &claimed, NULL) != FL_OK) return;
  fl_kernel* entries = malloc(claimed->count * sizeof *entries);
  if (entries == NULL) return;
  memcpy(entries, claimed->entries, claimed->count * sizeof *entries);
  for (uint32_t i = 0; i < claimed->count; i++) {
    entries[i].plan = plan;
    entries[i].run = run;
  }
  table = *claimed;
  table.entries = entries;
}

static fl_status kernels(fl_device device, const fl_kernel_table** out, fl_error* err) {
  (void)device, (void)err;
  pthread_once(&table_once, make_table);
  if (out != NULL) *out = &table;
  return FL_OK;
}

/* ---- Root -------------------------------------------------------------------------------------------------------- */

static fl_status get_extension(const char* name, uint32_t min_revision, const fl_extension** out, fl_error* err) {
  (void)name, (void)min_revision, (void)out, (void)err;
  return FL_UNIMPLEMENTED;
}

static fl_status plugin_shutdown(fl_error* err) {
  (void)err;
  return FL_OK;
}

static const fl_device_api device_api = {sizeof(fl_device_api), FL_KIND_DEVICE_API, device_count, device_open,
                                         device_close,          device_info,        device_sync};
static const fl_memory_api memory_api = {sizeof(fl_memory_api), FL_KIND_MEMORY_API, mem_alloc, mem_free, mem_info, copy,
                                         fill};
static const fl_stream_api stream_api = {
    sizeof(fl_stream_api), FL_KIND_STREAM_API, stream_create, stream_ok, stream_ok, stream_sync, host_task, wait_event};
static const fl_event_api event_api = {
    sizeof(fl_event_api), FL_KIND_EVENT_API, event_create, event_ok, event_record, event_ok, event_sync, event_elapsed};
static const fl_kernel_api kernel_api = {sizeof(fl_kernel_api), FL_KIND_KERNEL_API, kernels};

static const fl_plugin root = {
    .struct_size = sizeof(fl_plugin),
    .kind = FL_KIND_PLUGIN,
    .minor = FL_ABI_MINOR,
    .name = "null_control",
    .version = "0.1.0",
    .header_id = FL_HEADER_ID,
    .device = &device_api,
    .memory = &memory_api,
    .stream = &stream_api,
    .event = &event_api,
    .kernel = &kernel_api,
    .get_extension = get_extension,
    .shutdown = plugin_shutdown,
};

fl_status fl_plugin_query_v1(const fl_host* host, const fl_plugin** out, fl_error* err) {
  (void)host, (void)err;
  *out = &root;
  return FL_OK;
}
