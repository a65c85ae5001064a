/* submit.c - the way of a kernel to its stream: payloads, views of tensors, workspaces. */
#include "core.h"

typedef struct {
  ref_work_fn fn;
  alignas(16) unsigned char payload[];
} kernel_work;

static fl_status run_kernel(void* payload) {
  const kernel_work* work = payload;
  work->fn(work->payload);
  return FL_OK;
}

fl_status ref_submit(fl_stream stream, ref_work_fn fn, const void* payload, uint64_t bytes, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(stream, "stream", err));
  fl_engine_item* item = fl_engine_item_new(FL_ITEM_WORK, sizeof(kernel_work) + bytes);
  if (item == NULL) return fl_fail(err, FL_OUT_OF_RESOURCES, "no host memory for another kernel");
  kernel_work* work = (kernel_work*)item->payload;
  work->fn = fn;
  if (bytes > 0) memcpy(work->payload, payload, bytes);
  item->work = run_kernel;
  return fl_engine_submit(&stream->engine, item, err);
}

/* Bytes from element 0 to the end of the last element of a tensor that is not empty; 0 on overflow. */
static uint64_t extent_bytes(const fl_tensor* tensor) {
  uint64_t last = 0;
  for (uint32_t d = 0; d < tensor->ndim; d++) {
    uint64_t reach = 0;
    if (__builtin_mul_overflow((uint64_t)tensor->sizes[d] - 1, (uint64_t)tensor->strides[d], &reach)) return 0;
    if (__builtin_add_overflow(last, reach, &last)) return 0;
  }
  uint64_t bytes = 0;
  if (__builtin_add_overflow(last, 1, &last)) return 0;
  if (__builtin_mul_overflow(last, (uint64_t)fl_dtype_size(tensor->dtype), &bytes)) return 0;
  return bytes;
}

/* Worker-side address of element 0 of a tensor that is not empty. */
static fl_status tensor_data(fl_stream stream, const fl_tensor* tensor, char** out, fl_error* err) {
  uint64_t element = fl_dtype_size(tensor->dtype); /* a power of two */
  if ((tensor->byte_offset & (element - 1)) != 0) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "byte offset %llu is no multiple of the element size %llu",
                   (unsigned long long)tensor->byte_offset, (unsigned long long)element);
  }
  uint64_t bytes = extent_bytes(tensor);
  if (bytes == 0) return fl_fail(err, FL_INVALID_ARGUMENT, "the strides of a tensor overflow");
  if (tensor->byte_offset > tensor->base_bytes || bytes > tensor->base_bytes - tensor->byte_offset) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "a tensor of %llu bytes at offset %llu leaves its %llu bytes",
                   (unsigned long long)bytes, (unsigned long long)tensor->byte_offset,
                   (unsigned long long)tensor->base_bytes);
  }
  return ref_arena_locate(&stream->device->arena, tensor->base, tensor->byte_offset, bytes, "tensor", out, err);
}

fl_status ref_view_of(fl_stream stream, const fl_tensor* tensor, ref_view* out, fl_error* err) {
  FL_TRY(fl_check_pointer(stream, "stream", err));
  FL_TRY(fl_check_tensor(tensor, REF_MAX_NDIM, err));
  if (tensor->device != stream->device->index) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "a tensor of device %d on a stream of device %d", (int)tensor->device,
                   (int)stream->device->index);
  }
  char* data = NULL;
  if (tensor->numel > 0) FL_TRY(tensor_data(stream, tensor, &data, err));
  memset(out, 0, sizeof *out);
  out->data = data;
  out->numel = tensor->numel;
  out->ndim = tensor->ndim;
  out->dtype = tensor->dtype;
  for (uint32_t d = 0; d < tensor->ndim; d++) {
    out->sizes[d] = tensor->sizes[d];
    out->strides[d] = tensor->strides[d];
  }
  return FL_OK;
}

fl_status ref_workspace(fl_stream stream, const fl_call* call, uint64_t bytes, char** out, fl_error* err) {
  *out = NULL;
  if (bytes == 0) return FL_OK;
  FL_TRY(fl_check_pointer(stream, "stream", err));
  if (call->workspace_bytes < bytes) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "a workspace of %llu bytes, %llu are needed",
                   (unsigned long long)call->workspace_bytes, (unsigned long long)bytes);
  }
  return ref_arena_locate(&stream->device->arena, call->workspace_base, call->workspace_offset, call->workspace_bytes,
                          "workspace", out, err);
}
