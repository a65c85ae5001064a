/* plugin.c - the root table and the one exported symbol. */
#include "minimal.h"

/* No extension: FL-PINNED-*, FL-FAULT-* and FL-ERROR-004 are then not claimed, which profile core permits. */
static fl_status get_extension(const char* name, uint32_t min_revision, const fl_extension** out, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(name, "name", err));
  FL_TRY(fl_check_pointer(out, "out", err));
  return fl_fail(err, FL_UNIMPLEMENTED, "no extension '%.100s' of revision %u", name, (unsigned)min_revision);
}

static fl_status plugin_shutdown(fl_error* err) { return fl_error_usable(err) ? FL_OK : FL_INVALID_ARGUMENT; }

static const fl_plugin root = {
    .struct_size = sizeof(fl_plugin),
    .kind = FL_KIND_PLUGIN,
    .minor = FL_ABI_MINOR,
    .name = "minimal",
    .version = "0.1.0",
    .header_id = FL_HEADER_ID,
    .device = &min_device_api,
    .memory = &min_memory_api,
    .stream = &min_stream_api,
    .event = &min_event_api,
    .kernel = &min_kernel_api,
    .get_extension = get_extension,
    .shutdown = plugin_shutdown,
};

/* Pure [FL-THREAD-006]: no device, thread or file is opened here. */
fl_status fl_plugin_query_v1(const fl_host* host, const fl_plugin** out, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_struct(host, FL_KIND_HOST, FL_SIZE_V1_0_HOST, "host", err));
  FL_TRY(fl_check_pointer(out, "out", err));
  *out = &root;
  return FL_OK;
}
