/*
 * A tiny honest plugin for the loader's own tests: one INLINE device on host memory, one kernel
 * (aten::neg, int64, any strides). A test plugin includes this file, changes the tables and exports the query.
 */
#include <stdlib.h>
#include <string.h>

#include "torch_fl/plugin.h"

#define UNUSED __attribute__((unused))

struct fl_device_s {
  int is_open;
};
struct fl_stream_s {
  int64_t work;
};
struct fl_event_s {
  int recorded;
};

static struct fl_device_s the_device UNUSED;
static uint64_t live_bytes UNUSED;
enum { TOTAL_BYTES = 1 << 26 };

static UNUSED fl_status fail(fl_error* err, fl_status status, const char* text) {
  if (!err) return status;
  err->code = status;
  err->vendor_code = 0;
  err->length = 0;
  if (!err->capacity) return status;
  uint64_t length = strlen(text);
  if (length >= err->capacity) length = err->capacity - 1;
  memcpy(err->message, text, length);
  err->message[length] = 0;
  err->length = length;
  return status;
}

/* Every args struct begins with struct_size, kind, next. */
static UNUSED fl_status check(const void* args, uint32_t kind, uint32_t size, fl_error* err) {
  const struct {
    uint32_t struct_size, kind;
    const fl_ext* next;
  }* head = args;
  if (!head || head->kind != kind || head->struct_size < size) return fail(err, FL_INVALID_ARGUMENT, "bad struct");
  for (const fl_ext* node = head->next; node; node = node->next)
    if (node->flags & FL_EXT_REQUIRED) return fail(err, FL_UNIMPLEMENTED, "unknown required extension node");
  return FL_OK;
}

static UNUSED fl_status device_count(int32_t* out, fl_error* err) {
  (void)err;
  *out = 1;
  return FL_OK;
}
static UNUSED fl_status device_open(int32_t index, const fl_device_open_args* args, fl_device* out, fl_error* err) {
  fl_status status = check(args, FL_KIND_DEVICE_OPEN_ARGS, FL_SIZE_V1_0_DEVICE_OPEN_ARGS, err);
  if (status) return status;
  if (index != 0 || !out) return fail(err, FL_INVALID_ARGUMENT, "no such device");
  if (args->options && *args->options) return fail(err, FL_INVALID_ARGUMENT, args->options);
  if (the_device.is_open) return fail(err, FL_FAILED_PRECONDITION, "already open");
  the_device.is_open = 1;
  *out = &the_device;
  return FL_OK;
}
static UNUSED fl_status device_close(fl_device device, fl_error* err) {
  (void)err;
  device->is_open = 0;
  return FL_OK;
}
static UNUSED fl_status device_info(fl_device device, fl_device_info* out, fl_error* err) {
  (void)device;
  if (!out || out->kind != FL_KIND_DEVICE_INFO || out->struct_size < FL_SIZE_V1_0_DEVICE_INFO)
    return fail(err, FL_INVALID_ARGUMENT, "bad struct");
  fl_device_info info = {.struct_size = out->struct_size,
                         .kind = out->kind,
                         .name = "fake card",
                         .uuid = {1, 2, 3},
                         .numa_node = -1,
                         .execution_model = FL_EXEC_INLINE,
                         .independent_streams = 1,
                         .address_model = FL_ADDRESS_LINEAR,
                         .alloc_align = 64,
                         .max_align = 4096,
                         .total_bytes = TOTAL_BYTES,
                         .timer_resolution_ns = 1};
  memcpy(out, &info, FL_SIZE_V1_0_DEVICE_INFO);
  return FL_OK;
}
static UNUSED fl_status device_sync(fl_device device, uint64_t timeout_ns, fl_error* err) {
  (void)device, (void)timeout_ns, (void)err;
  return FL_OK;
}

static UNUSED fl_status mem_alloc(fl_device device, const fl_mem_alloc_args* args, uint64_t* out, fl_error* err) {
  fl_status status = check(args, FL_KIND_MEM_ALLOC_ARGS, FL_SIZE_V1_0_MEM_ALLOC_ARGS, err);
  if (status) return status;
  if (!device || !out || !args->bytes || args->alignment > 4096) return fail(err, FL_INVALID_ARGUMENT, "bad argument");
  if (live_bytes + args->bytes > TOTAL_BYTES) return fail(err, FL_OUT_OF_MEMORY, "no memory left");
  uint64_t alignment = args->alignment > 64 ? args->alignment : 64;
  void* block = aligned_alloc(alignment, (args->bytes + alignment - 1) / alignment * alignment);
  if (!block) return fail(err, FL_OUT_OF_MEMORY, "no host memory");
  live_bytes += args->bytes;
  *out = (uint64_t)(uintptr_t)block;
  return FL_OK;
}
static UNUSED fl_status mem_free(fl_device device, uint64_t base, uint64_t bytes, fl_error* err) {
  (void)device, (void)err;
  live_bytes -= bytes;
  free((void*)(uintptr_t)base);
  return FL_OK;
}
static UNUSED fl_status mem_info(fl_device device, uint64_t* out_free, uint64_t* out_total, fl_error* err) {
  (void)device, (void)err;
  *out_free = TOTAL_BYTES - live_bytes;
  *out_total = TOTAL_BYTES;
  return FL_OK;
}
static UNUSED fl_status mem_copy(fl_stream stream, const fl_copy_args* args, fl_error* err) {
  (void)stream;
  fl_status status = check(args, FL_KIND_COPY_ARGS, FL_SIZE_V1_0_COPY_ARGS, err);
  if (status) return status;
  memcpy((char*)(uintptr_t)args->dst_base + args->dst_offset, (const char*)(uintptr_t)args->src_base + args->src_offset,
         args->bytes);
  return FL_OK;
}
static UNUSED fl_status mem_fill(fl_stream stream, uint64_t base, uint64_t offset, uint64_t pattern, uint32_t size,
                                 uint64_t count, fl_error* err) {
  (void)stream, (void)err;
  for (uint64_t i = 0; i < count; i++) memcpy((char*)(uintptr_t)base + offset + i * size, &pattern, size);
  return FL_OK;
}

static UNUSED fl_status stream_create(fl_device device, const fl_stream_create_args* args, fl_stream* out,
                                      fl_error* err) {
  (void)device;
  fl_status status = check(args, FL_KIND_STREAM_CREATE_ARGS, FL_SIZE_V1_0_STREAM_CREATE_ARGS, err);
  if (status) return status;
  if (args->priority) return fail(err, FL_INVALID_ARGUMENT, "priority 0 only");
  *out = calloc(1, sizeof(**out));
  return FL_OK;
}
static UNUSED fl_status stream_destroy(fl_stream stream, fl_error* err) {
  (void)err;
  free(stream);
  return FL_OK;
}
static UNUSED fl_status stream_query(fl_stream stream, fl_error* err) {
  (void)stream, (void)err;
  return FL_OK;
}
static UNUSED fl_status stream_sync(fl_stream stream, uint64_t timeout_ns, fl_error* err) {
  (void)stream, (void)timeout_ns, (void)err;
  return FL_OK;
}
static UNUSED fl_status stream_host_task(fl_stream stream, fl_host_fn fn, void* arg, fl_error* err) {
  (void)stream, (void)err;
  fn(arg, FL_OK);
  return FL_OK;
}
static UNUSED fl_status stream_wait_event(fl_stream stream, fl_event event, fl_error* err) {
  (void)stream, (void)event, (void)err;
  return FL_OK;
}

static UNUSED fl_status event_create(fl_device device, const fl_event_create_args* args, fl_event* out, fl_error* err) {
  (void)device;
  fl_status status = check(args, FL_KIND_EVENT_CREATE_ARGS, FL_SIZE_V1_0_EVENT_CREATE_ARGS, err);
  if (status) return status;
  *out = calloc(1, sizeof(**out));
  return FL_OK;
}
static UNUSED fl_status event_destroy(fl_event event, fl_error* err) {
  (void)err;
  free(event);
  return FL_OK;
}
static UNUSED fl_status event_record(fl_event event, fl_stream stream, fl_error* err) {
  (void)stream, (void)err;
  event->recorded = 1;
  return FL_OK;
}
static UNUSED fl_status event_query(fl_event event, fl_error* err) {
  (void)event, (void)err;
  return FL_OK;
}
static UNUSED fl_status event_sync(fl_event event, uint64_t timeout_ns, fl_error* err) {
  (void)event, (void)timeout_ns, (void)err;
  return FL_OK;
}
static UNUSED fl_status event_elapsed(fl_event start, fl_event end, int64_t* out, fl_error* err) {
  (void)start, (void)end, (void)out;
  return fail(err, FL_FAILED_PRECONDITION, "no timing");
}

enum { WORKSPACE = 96 };
static UNUSED fl_status neg_plan(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                                 fl_error* err) {
  (void)kernel, (void)device;
  fl_status status = check(call, FL_KIND_CALL, FL_SIZE_V1_0_CALL, err);
  if (status) return status;
  if (call->n_args != 1 || call->args[0].tag != FL_TAG_TENSOR) return fail(err, FL_INVALID_ARGUMENT, "one tensor");
  if (call->outs[0]->ndim > 2) return fail(err, FL_UNIMPLEMENTED, "at most two dimensions");
  out->workspace_bytes = WORKSPACE;
  out->workspace_align = 128;
  out->rng_increment = 0;
  out->token = 7;
  return FL_OK;
}
static UNUSED fl_status neg_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  (void)kernel;
  fl_status status = check(call, FL_KIND_CALL, FL_SIZE_V1_0_CALL, err);
  if (status) return status;
  if (call->plan_token != 7 || call->workspace_bytes < WORKSPACE) return fail(err, FL_INVALID_ARGUMENT, "not planned");
  memset((char*)(uintptr_t)call->workspace_base + call->workspace_offset, 1, WORKSPACE);
  const fl_tensor *in = call->args[0].value.tensor, *out = call->outs[0];
  for (int64_t n = 0; n < out->numel; n++) {
    int64_t from = 0, to = 0, rest = n;
    for (uint32_t d = out->ndim; d-- > 0; rest /= out->sizes[d]) {
      from += rest % out->sizes[d] * in->strides[d];
      to += rest % out->sizes[d] * out->strides[d];
    }
    const int64_t* source = (const int64_t*)(uintptr_t)(in->base + in->byte_offset);
    int64_t* target = (int64_t*)(uintptr_t)(out->base + out->byte_offset);
    target[to] = -source[from];
  }
  stream->work++;
  return FL_OK;
}

static UNUSED const fl_kernel_row rows[] = {
    {.struct_size = sizeof(fl_kernel_row), .kind = FL_KIND_KERNEL_ROW, .dtypes = {FL_DTYPE_I64}},
    {.struct_size = sizeof(fl_kernel_row), .kind = FL_KIND_KERNEL_ROW, .dtypes = {200}}, /* a dtype of the future */
};
#define NEG_KERNEL                                                                                                    \
  {.struct_size = sizeof(fl_kernel),                                                                                  \
   .kind = FL_KIND_KERNEL,                                                                                            \
   .op = "aten::neg",                                                                                                 \
   .variant = "generic",                                                                                              \
   .revision = 1,                                                                                                     \
   .n_types = 1,                                                                                                      \
   .rows = rows,                                                                                                      \
   .n_rows = 2,                                                                                                       \
   .row_stride = sizeof(fl_kernel_row),                                                                               \
   .layouts = FL_LAYOUT_STRIDED,                                                                                      \
   .max_ndim = 2,                                                                                                     \
   .flags = FL_KERNEL_INPLACE_OK | FL_KERNEL_DETERMINISTIC,                                                           \
   .plan = neg_plan,                                                                                                  \
   .run = neg_run}
#ifndef KERNELS
#define KERNELS NEG_KERNEL
#endif
static UNUSED const fl_kernel kernels_list[] = {KERNELS};
static UNUSED const fl_kernel_table kernel_table = {.struct_size = sizeof(fl_kernel_table),
                                                    .kind = FL_KIND_KERNEL_TABLE,
                                                    .entry_stride = sizeof(fl_kernel),
                                                    .count = sizeof(kernels_list) / sizeof(fl_kernel),
                                                    .entries = kernels_list};
static UNUSED fl_status kernels(fl_device device, const fl_kernel_table** out, fl_error* err) {
  (void)device, (void)err;
  *out = &kernel_table;
  return FL_OK;
}
static UNUSED fl_status get_extension(const char* name, uint32_t min_revision, const fl_extension** out,
                                      fl_error* err) {
  (void)min_revision, (void)out;
  return fail(err, FL_UNIMPLEMENTED, name);
}
static UNUSED fl_status shutdown_plugin(fl_error* err) {
  (void)err;
  return FL_OK;
}

static UNUSED const fl_device_api device_api = {
    sizeof(fl_device_api), FL_KIND_DEVICE_API, device_count, device_open, device_close, device_info, device_sync};
static UNUSED const fl_memory_api memory_api = {
    sizeof(fl_memory_api), FL_KIND_MEMORY_API, mem_alloc, mem_free, mem_info, mem_copy, mem_fill};
static UNUSED const fl_stream_api stream_api = {sizeof(fl_stream_api), FL_KIND_STREAM_API, stream_create,
                                                stream_destroy,        stream_query,       stream_sync,
                                                stream_host_task,      stream_wait_event};
static UNUSED const fl_event_api event_api = {sizeof(fl_event_api), FL_KIND_EVENT_API, event_create, event_destroy,
                                              event_record,         event_query,       event_sync,   event_elapsed};
static UNUSED const fl_kernel_api kernel_api = {sizeof(fl_kernel_api), FL_KIND_KERNEL_API, kernels};
static UNUSED const fl_plugin root = {.struct_size = sizeof(fl_plugin),
                                      .kind = FL_KIND_PLUGIN,
                                      .name = "fake",
                                      .version = "1.2",
                                      .header_id = FL_HEADER_ID,
                                      .device = &device_api,
                                      .memory = &memory_api,
                                      .stream = &stream_api,
                                      .event = &event_api,
                                      .kernel = &kernel_api,
                                      .get_extension = get_extension,
                                      .shutdown = shutdown_plugin};

#define EXPORT __attribute__((visibility("default")))
