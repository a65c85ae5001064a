/* device.c - the one device: opening, describing, waiting for all of it. */
#include "minimal.h"

static pthread_mutex_t open_mutex = PTHREAD_MUTEX_INITIALIZER;
static fl_device open_device; /* NULL: not open */

static fl_status device_count(int32_t* out, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(out, "out", err));
  *out = 1;
  return FL_OK;
}

static fl_status make_device(fl_device* out, fl_error* err) {
  if (open_device != NULL) return fl_fail(err, FL_FAILED_PRECONDITION, "the device is open already");
  fl_device device = calloc(1, sizeof *device);
  if (device == NULL) return fl_fail(err, FL_OUT_OF_RESOURCES, "no host memory for a device");
  atomic_init(&device->references, 1);
  pthread_mutex_init(&device->mutex, NULL);
  fl_engine_group_init(&device->group, FL_EXEC_ASYNC, min_stream_release, NULL);
  open_device = device;
  *out = device;
  return FL_OK;
}

static fl_status device_open(int32_t index, const fl_device_open_args* args, fl_device* out, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(out, "out", err));
  FL_TRY(fl_check_struct(args, FL_KIND_DEVICE_OPEN_ARGS, FL_SIZE_V1_0_DEVICE_OPEN_ARGS, "device_open args", err));
  FL_TRY(fl_check_chain(args->next, err));
  if (index != 0) return fl_fail(err, FL_INVALID_ARGUMENT, "device %d does not exist", (int)index);
  if (args->options != NULL && args->options[0] != '\0') {
    return fl_fail(err, FL_INVALID_ARGUMENT, "unknown option '%.100s'", args->options);
  }
  pthread_mutex_lock(&open_mutex);
  fl_status status = make_device(out, err);
  pthread_mutex_unlock(&open_mutex);
  return status;
}

void min_device_retain(fl_device device) { atomic_fetch_add(&device->references, 1); }

void min_device_release(fl_device device) {
  if (atomic_fetch_sub(&device->references, 1) != 1) return;
  min_free_all(device);
  fl_engine_group_destroy(&device->group);
  pthread_mutex_destroy(&device->mutex);
  free(device);
}

static fl_status device_close(fl_device device, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  pthread_mutex_lock(&open_mutex);
  open_device = NULL;
  pthread_mutex_unlock(&open_mutex);
  min_device_release(device);
  return FL_OK;
}

static fl_status device_info(fl_device device, fl_device_info* out, fl_error* err) {
  static const uint8_t uuid[16] = "minimal device 0";
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  FL_TRY(fl_check_struct(out, FL_KIND_DEVICE_INFO, FL_SIZE_V1_0_DEVICE_INFO, "device_info", err));
  out->name = "Minimal device";
  memcpy(out->uuid, uuid, sizeof uuid);
  out->numa_node = -1;
  out->execution_model = FL_EXEC_ASYNC;
  out->independent_streams = 1;
  out->priority_least = 0;
  out->priority_greatest = 0;
  out->address_model = FL_ADDRESS_LINEAR;
  out->alloc_align = MIN_ALIGN;
  out->max_align = MIN_MAX_ALIGN;
  out->alloc_may_wait = 0;
  out->host_accessible = 1;
  out->total_bytes = MIN_TOTAL;
  out->timer_resolution_ns = 1;
  return FL_OK;
}

static fl_status device_sync(fl_device device, uint64_t timeout_ns, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  return fl_engine_group_sync(&device->group, timeout_ns, err);
}

const fl_device_api min_device_api = {
    .struct_size = sizeof(fl_device_api),
    .kind = FL_KIND_DEVICE_API,
    .count = device_count,
    .open = device_open,
    .close = device_close,
    .info = device_info,
    .sync = device_sync,
};
