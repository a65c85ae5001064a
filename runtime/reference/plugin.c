/*
 * plugin.c - the reference vendor of Torch-FL: the root table and the one exported symbol.
 *
 * Start here; then device.c, memory.c and arena.c, stream.c and event.c (over the SDK's engines), copy.c, submit.c
 * (what kernels use), kernels/ and table.c.
 */
#include "core.h"

static const fl_device_api device_api = {
    .struct_size = sizeof(fl_device_api),
    .kind = FL_KIND_DEVICE_API,
    .count = ref_device_count,
    .open = ref_device_open,
    .close = ref_device_close,
    .info = ref_device_info,
    .sync = ref_device_sync,
};

static const fl_memory_api memory_api = {
    .struct_size = sizeof(fl_memory_api),
    .kind = FL_KIND_MEMORY_API,
    .alloc = ref_mem_alloc,
    .free = ref_mem_free,
    .info = ref_mem_info,
    .copy = ref_copy,
    .fill = ref_fill,
};

static const fl_stream_api stream_api = {
    .struct_size = sizeof(fl_stream_api),
    .kind = FL_KIND_STREAM_API,
    .create = ref_stream_create,
    .destroy = ref_stream_destroy,
    .query = ref_stream_query,
    .sync = ref_stream_sync,
    .host_task = ref_stream_host_task,
    .wait_event = ref_stream_wait_event,
};

static const fl_event_api event_api = {
    .struct_size = sizeof(fl_event_api),
    .kind = FL_KIND_EVENT_API,
    .create = ref_event_create,
    .destroy = ref_event_destroy,
    .record = ref_event_record,
    .query = ref_event_query,
    .sync = ref_event_sync,
    .elapsed = ref_event_elapsed,
};

static const fl_kernel_api kernel_api = {
    .struct_size = sizeof(fl_kernel_api),
    .kind = FL_KIND_KERNEL_API,
    .kernels = ref_kernels,
};

static fl_status get_extension(const char* name, uint32_t min_revision, const fl_extension** out, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(name, "name", err));
  FL_TRY(fl_check_pointer(out, "out", err));
  const fl_extension* found = NULL;
  if (strcmp(name, "fl.pinned") == 0) found = (const fl_extension*)&ref_pinned;
  if (strcmp(name, "fl.fault") == 0) found = (const fl_extension*)&ref_fault;
  if (found == NULL || found->revision < min_revision) {
    int length = (int)fl_utf8_cut(name, strlen(name), 200);
    return fl_fail(err, FL_UNIMPLEMENTED, "no extension '%.*s' of revision %u", length, name, (unsigned)min_revision);
  }
  *out = found;
  return FL_OK;
}

/* Nothing to do: threads and memory of open devices go with the process [FL-THREAD-007]. */
static fl_status plugin_shutdown(fl_error* err) { return fl_error_usable(err) ? FL_OK : FL_INVALID_ARGUMENT; }

static const fl_plugin root = {
    .struct_size = sizeof(fl_plugin),
    .kind = FL_KIND_PLUGIN,
    .minor = FL_ABI_MINOR,
    .name = ref_plugin_name,
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
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_struct(host, FL_KIND_HOST, FL_SIZE_V1_0_HOST, "host", err));
  FL_TRY(fl_check_pointer(out, "out", err));
  ref_log_to(host);
  *out = &root;
  return FL_OK;
}
