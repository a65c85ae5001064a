/* device.c - opening, closing and describing devices. */
#include <stdlib.h>

#include "core.h"

static pthread_mutex_t open_mutex = PTHREAD_MUTEX_INITIALIZER;
static fl_device open_devices[REF_MAX_DEVICES]; /* by index; one handle each */

fl_status ref_device_count(int32_t* out, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(out, "out", err));
  return ref_config_devices(out, err);
}

static fl_status make_device(int32_t index, uint64_t memory, fl_device* out, fl_error* err) {
  fl_device device = calloc(1, sizeof *device);
  if (device == NULL) return fl_fail(err, FL_OUT_OF_RESOURCES, "no host memory for a device");
  fl_status status = ref_arena_open(&device->arena, index, memory, err);
  if (status != FL_OK) {
    free(device);
    return status;
  }
  device->index = index;
  atomic_init(&device->references, 1);
  fl_engine_group_init(&device->group, ref_this.execution_model, ref_stream_release, ref_stream_failed);
  *out = device;
  return FL_OK;
}

fl_status ref_device_open(int32_t index, const fl_device_open_args* args, fl_device* out, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(out, "out", err));
  FL_TRY(fl_check_struct(args, FL_KIND_DEVICE_OPEN_ARGS, FL_SIZE_V1_0_DEVICE_OPEN_ARGS, "device_open args", err));
  FL_TRY(fl_check_chain(args->next, err));
  int32_t count = 0;
  FL_TRY(ref_config_devices(&count, err));
  if (index < 0 || index >= count) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "device %d of %d does not exist", (int)index, (int)count);
  }
  uint64_t memory = 0;
  FL_TRY(ref_config_memory(args->options, &memory, err));

  pthread_mutex_lock(&open_mutex);
  fl_device device = NULL;
  fl_status status = FL_OK;
  if (open_devices[index] != NULL) {
    status = fl_fail(err, FL_FAILED_PRECONDITION, "device %d is open already", (int)index);
  } else {
    status = make_device(index, memory, &device, err);
  }
  if (status == FL_OK) open_devices[index] = device;
  pthread_mutex_unlock(&open_mutex);
  if (status != FL_OK) return status;
  *out = device;
  ref_log(FL_LOG_INFO, "%s: device %d opened with %llu bytes", ref_plugin_name, (int)index, (unsigned long long)memory);
  return FL_OK;
}

void ref_device_release(fl_device device) {
  if (atomic_fetch_sub(&device->references, 1) != 1) return;
  fl_engine_group_destroy(&device->group);
  ref_arena_close(&device->arena);
  free(device);
}

fl_status ref_device_close(fl_device device, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  int32_t index = device->index;
  pthread_mutex_lock(&open_mutex);
  open_devices[index] = NULL;
  pthread_mutex_unlock(&open_mutex);
  ref_device_release(device);
  ref_log(FL_LOG_INFO, "%s: device %d closed", ref_plugin_name, (int)index);
  return FL_OK;
}

/* The same on every start: the plugin's name and the index. */
static void fill_uuid(uint8_t uuid[16], int32_t index) {
  memset(uuid, 0, 16);
  uint64_t hash = 14695981039346656037ull; /* FNV-1a */
  for (const char* c = ref_plugin_name; *c != '\0'; c++) hash = (hash ^ (uint8_t)*c) * 1099511628211ull;
  memcpy(uuid, &hash, sizeof hash);
  memcpy(uuid + 12, &index, sizeof index);
}

fl_status ref_device_info(fl_device device, fl_device_info* out, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  FL_TRY(fl_check_struct(out, FL_KIND_DEVICE_INFO, FL_SIZE_V1_0_DEVICE_INFO, "device_info", err));
  struct timespec resolution = {0, 1};
  clock_getres(CLOCK_MONOTONIC, &resolution);
  out->name = ref_this.device_name;
  fill_uuid(out->uuid, device->index);
  out->numa_node = -1;
  out->execution_model = ref_this.execution_model;
  out->independent_streams = 1;
  out->priority_least = REF_PRIORITY_LEAST;
  out->priority_greatest = REF_PRIORITY_GREATEST;
  out->address_model = ref_this.address_model;
  out->alloc_align = ref_this.alloc_align;
  out->max_align = REF_MAX_ALIGN;
  out->alloc_may_wait = 0;
  out->host_accessible = 0;
  out->total_bytes = device->arena.total;
  out->timer_resolution_ns = (uint64_t)resolution.tv_sec * FL_NS_PER_S + (uint64_t)resolution.tv_nsec;
  return FL_OK;
}

fl_status ref_device_usable(fl_device device, fl_error* err) {
  fl_status lost = atomic_load(&device->group.lost);
  return lost == FL_OK ? FL_OK : fl_engine_report(lost, err);
}

fl_status ref_device_sync(fl_device device, uint64_t timeout_ns, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  return fl_engine_group_sync(&device->group, timeout_ns, err);
}
