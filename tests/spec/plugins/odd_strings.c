/* The honest fake, whose strings are what the environment says: ODD_NAME, ODD_VERSION, ODD_OP, ODD_VARIANT, ODD_CARD. */
#include "fake.h"

static const char* odd(const char* variable, const char* otherwise) {
  const char* value = getenv(variable);
  return value ? value : otherwise;
}

static fl_status odd_info(fl_device device, fl_device_info* out, fl_error* err) {
  fl_status status = device_info(device, out, err);
  if (!status) out->name = odd("ODD_CARD", out->name);
  return status;
}

static fl_status odd_kernels(fl_device device, const fl_kernel_table** out, fl_error* err) {
  static fl_kernel entry;
  static fl_kernel_table table;
  (void)device, (void)err;
  entry = kernels_list[0];
  entry.op = odd("ODD_OP", entry.op);
  entry.variant = odd("ODD_VARIANT", entry.variant);
  table = kernel_table;
  table.entries = &entry;
  *out = &table;
  return FL_OK;
}

EXPORT fl_status fl_plugin_query_v1(const fl_host* host, const fl_plugin** out, fl_error* err) {
  (void)host, (void)err;
  static fl_device_api device;
  static fl_kernel_api kernel;
  static fl_plugin plugin;
  device = device_api;
  device.info = odd_info;
  kernel = kernel_api;
  kernel.kernels = odd_kernels;
  plugin = root;
  plugin.name = odd("ODD_NAME", root.name);
  plugin.version = odd("ODD_VERSION", root.version);
  plugin.device = &device;
  plugin.kernel = &kernel;
  *out = &plugin;
  return FL_OK;
}
