/* Breaks one promise in each of several functions; the driver has to notice every one. */
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "fake.h"

static const fl_call* kept_call;

/* Writes its own idea of the struct, not the host's. */
static fl_status careless_info(fl_device device, fl_device_info* out, fl_error* err) {
  fl_status status = device_info(device, out, err);
  if (!status) memset((char*)out + out->struct_size, 0, 8);
  return status;
}

/* Touches its output although it fails, and writes a NUL behind the message's capacity. */
static fl_status careless_create(fl_device device, const fl_stream_create_args* args, fl_stream* out, fl_error* err) {
  fl_status status = stream_create(device, args, out, err);
  if (status) *out = NULL;
  if (status && err) err->message[err->capacity] = 0;
  return status;
}

/* Sorts its caller's sizes, so to speak: writes into an argument. */
static fl_status careless_alloc(fl_device device, const fl_mem_alloc_args* args, uint64_t* out, fl_error* err) {
  fl_status status = mem_alloc(device, args, out, err);
  ((fl_mem_alloc_args*)(uintptr_t)args)->flags = 1;
  return status;
}

/* Flushes subnormals from now on, on the caller's thread. */
static fl_status careless_record(fl_event event, fl_stream stream, fl_error* err) {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8000);
#else
  uint64_t fpcr;
  __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
  __asm__ volatile("msr fpcr, %0" : : "r"(fpcr | (uint64_t)1 << 24));
#endif
  return event_record(event, stream, err);
}

/* Remembers the call block and uses more workspace than it planned. */
static fl_status careless_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  kept_call = call;
  fl_status status = neg_run(kernel, stream, call, err);
  if (!status) memset((char*)(uintptr_t)call->workspace_base + call->workspace_offset + WORKSPACE, 1, 8);
  return status;
}

/* Says FL_INTERNAL when the call block that run kept no longer reads as it did. */
static fl_status careless_query(fl_stream stream, fl_error* err) {
  (void)stream, (void)err;
  return kept_call && kept_call->kind != FL_KIND_CALL ? FL_INTERNAL : FL_OK;
}

static fl_plugin changed;
static fl_device_api devices;
static fl_stream_api streams;
static fl_memory_api memory;
static fl_event_api events;
static fl_kernel kernel;
static fl_kernel_table table;
static fl_kernel_api kernel_functions;

static fl_status careless_kernels(fl_device device, const fl_kernel_table** out, fl_error* err) {
  (void)device, (void)err;
  *out = &table;
  return FL_OK;
}

EXPORT fl_status fl_plugin_query_v1(const fl_host* host, const fl_plugin** out, fl_error* err) {
  (void)host, (void)err;
  changed = root;
  changed.device = &devices;
  devices = device_api;
  devices.info = careless_info;
  changed.stream = &streams;
  streams = stream_api;
  streams.create = careless_create;
  streams.query = careless_query;
  changed.memory = &memory;
  memory = memory_api;
  memory.alloc = careless_alloc;
  changed.event = &events;
  events = event_api;
  events.record = careless_record;
  kernel = kernels_list[0];
  kernel.run = careless_run;
  table = kernel_table;
  table.entries = &kernel;
  changed.kernel = &kernel_functions;
  kernel_functions = kernel_api;
  kernel_functions.kernels = careless_kernels;
  *out = &changed;
  return FL_OK;
}
