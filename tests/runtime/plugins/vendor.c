/* A vendor for discovery: the loader's honest fake with several devices. What goes wrong is asked for by -D:
 *   VENDOR "name", DEVICES n, REFUSES "text" (the query), COUNT_FAILS "text", WAITS "file" (the count, until there is
 *   such a file), LOAD_DOES, COUNT_DOES, OPEN_DOES statement, SAYS "text" (to the host's log), OPEN_FAILS index, LOST
 *   (mem_info fails), INFO field = value (of every device), KERNELS list (see fake.h). */
#include <fcntl.h>
#include <unistd.h>

#include "fake.h"

#ifndef VENDOR
#define VENDOR "acme"
#endif
#ifndef DEVICES
#define DEVICES 2
#endif
#ifndef OPEN_FAILS
#define OPEN_FAILS -1
#endif

static struct fl_device_s devices[64];
static char names[64][80];

#ifdef LOAD_DOES
__attribute__((constructor)) static void loaded(void) { LOAD_DOES; }
#endif

static UNUSED fl_status vendor_count(int32_t* out, fl_error* err) {
#ifdef COUNT_FAILS
  (void)out;
  return fail(err, FL_INTERNAL, COUNT_FAILS);
#else
  (void)err;
#ifdef COUNT_DOES
  COUNT_DOES;
#endif
#ifdef WAITS
  while (access(WAITS, F_OK)) usleep(1000);
#endif
  *out = DEVICES;
  return FL_OK;
#endif
}

static UNUSED fl_status vendor_open(int32_t index, const fl_device_open_args* args, fl_device* out, fl_error* err) {
#ifdef OPEN_DOES
  OPEN_DOES;
#endif
  if (index == OPEN_FAILS) return fail(err, FL_INTERNAL, "no power");
  if (devices[index].is_open) return fail(err, FL_FAILED_PRECONDITION, "already open");
  devices[index].is_open = 1;
  strcpy(names[index], "card");
  if (args->options && *args->options) strcat(strcat(names[index], " "), args->options);
  *out = &devices[index];
  return FL_OK;
}

static UNUSED fl_status vendor_info(fl_device device, fl_device_info* out, fl_error* err) {
  fl_status status = device_info(device, out, err);
  out->name = names[device - devices];
  out->uuid[15] = (uint8_t)(device - devices);
#ifdef INFO
  out->INFO;
#endif
  return status;
}

static UNUSED fl_status vendor_mem_info(fl_device device, uint64_t* out_free, uint64_t* out_total, fl_error* err) {
#ifdef LOST
  (void)device, (void)out_free, (void)out_total;
  return fail(err, FL_DEVICE_LOST, "fell off the bus");
#else
  return mem_info(device, out_free, out_total, err);
#endif
}

EXPORT fl_status fl_plugin_query_v1(const fl_host* host, const fl_plugin** out, fl_error* err) {
  (void)host;
#ifdef SAYS
  if (host->log) host->log(host->log_user, FL_LOG_INFO, SAYS);
#endif
#ifdef REFUSES
  (void)out;
  return fail(err, FL_UNIMPLEMENTED, REFUSES);
#else
  (void)err;
  static fl_device_api device_functions;
  static fl_memory_api memory_functions;
  static fl_plugin plugin;
  device_functions = device_api;
  device_functions.count = vendor_count;
  device_functions.open = vendor_open;
  device_functions.info = vendor_info;
  memory_functions = memory_api;
  memory_functions.info = vendor_mem_info;
  plugin = root;
  plugin.name = VENDOR;
  plugin.device = &device_functions;
  plugin.memory = &memory_functions;
  *out = &plugin;
  return FL_OK;
#endif
}
