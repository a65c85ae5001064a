/* copy.c - copies in all directions, and fill. */
#include "core.h"

typedef struct {
  char* destination;
  const char* source; /* NULL: the bytes follow */
  uint64_t bytes;
  alignas(16) char captured[];
} copy_work;

static fl_status run_copy(void* payload) {
  copy_work* work = payload;
  const char* source = work->source != NULL ? work->source : work->captured;
  memcpy(work->destination, source, work->bytes);
  return FL_OK;
}

/* One side of a copy as the worker sees it. */
static fl_status copy_side(uint32_t space, fl_device device, uint64_t base, uint64_t offset, uint64_t bytes,
                           const char* what, char** out, fl_error* err) {
  if (space == FL_SPACE_DEVICE) {
    FL_TRY(fl_check_pointer(device, what, err));
    return ref_arena_locate(&device->arena, base, offset, bytes, what, out, err);
  }
  uint64_t begin = 0;
  uint64_t end = 0;
  int wraps = __builtin_add_overflow(base, offset, &begin) || __builtin_add_overflow(begin, bytes, &end);
  if (base == 0 || wraps) return fl_fail(err, FL_INVALID_ARGUMENT, "%s: no host range", what);
  *out = (char*)(uintptr_t)begin;
  return FL_OK;
}

static int overlaps(const fl_copy_args* args) {
  if (args->dst_space != args->src_space) return 0;
  if (args->dst_device != args->src_device || args->dst_base != args->src_base) return 0;
  uint64_t low = args->dst_offset < args->src_offset ? args->dst_offset : args->src_offset;
  uint64_t high = args->dst_offset < args->src_offset ? args->src_offset : args->dst_offset;
  return high - low < args->bytes;
}

static fl_status check_copy(fl_stream stream, const fl_copy_args* args, fl_error* err) {
  FL_TRY(fl_check_struct(args, FL_KIND_COPY_ARGS, FL_SIZE_V1_0_COPY_ARGS, "copy args", err));
  FL_TRY(fl_check_chain(args->next, err));
  if (args->dst_space > FL_SPACE_DEVICE || args->src_space > FL_SPACE_DEVICE) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "a copy between unknown spaces %u and %u", (unsigned)args->src_space,
                   (unsigned)args->dst_space);
  }
  if (args->dst_space == FL_SPACE_HOST && args->src_space == FL_SPACE_HOST) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "a copy from host to host");
  }
  if (args->bytes == 0) return fl_fail(err, FL_INVALID_ARGUMENT, "a copy of 0 bytes");
  int of_destination = args->dst_space == FL_SPACE_DEVICE && args->dst_device == stream->device;
  int of_source = args->src_space == FL_SPACE_DEVICE && args->src_device == stream->device;
  if (!of_destination && !of_source) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "the stream belongs to neither side of the copy");
  }
  if (overlaps(args)) return fl_fail(err, FL_INVALID_ARGUMENT, "source and destination overlap");
  return FL_OK;
}

fl_status ref_copy(fl_stream stream, const fl_copy_args* args, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(stream, "stream", err));
  FL_TRY(check_copy(stream, args, err));
  char* source = NULL;
  char* destination = NULL;
  FL_TRY(copy_side(args->src_space, args->src_device, args->src_base, args->src_offset, args->bytes, "copy source",
                   &source, err));
  FL_TRY(copy_side(args->dst_space, args->dst_device, args->dst_base, args->dst_offset, args->bytes, "copy destination",
                   &destination, err));

  /* Ordinary host memory is the host's again when this returns [FL-COPY-002]. */
  int capture = args->src_space == FL_SPACE_HOST && ref_this.execution_model == FL_EXEC_ASYNC;
  if (capture && ref_is_pinned(source, args->bytes)) capture = 0;
  uint64_t captured_bytes = capture ? args->bytes : 0;
  fl_engine_item* item = fl_engine_item_new(FL_ITEM_WORK, sizeof(copy_work) + captured_bytes);
  if (item == NULL) return fl_fail(err, FL_OUT_OF_RESOURCES, "no host memory for another copy");
  copy_work* work = (copy_work*)item->payload;
  work->destination = destination;
  work->source = capture ? NULL : source;
  work->bytes = args->bytes;
  memcpy(work->captured, source, captured_bytes);
  item->work = run_copy;
  return fl_engine_submit(&stream->engine, item, err);
}

typedef struct {
  char* destination;
  uint64_t pattern;
  uint64_t count;
  uint32_t pattern_bytes;
} fill_work;

static fl_status run_fill(void* payload) {
  const fill_work* work = payload;
  if (work->pattern_bytes == 1) {
    memset(work->destination, (int)(work->pattern & 0xFF), work->count);
    return FL_OK;
  }
  for (uint64_t i = 0; i < work->count; i++) {
    memcpy(work->destination + i * work->pattern_bytes, &work->pattern, work->pattern_bytes);
  }
  return FL_OK;
}

fl_status ref_fill(fl_stream stream, uint64_t base, uint64_t offset, uint64_t pattern, uint32_t pattern_bytes,
                   uint64_t count, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(stream, "stream", err));
  if (pattern_bytes != 1 && pattern_bytes != 2 && pattern_bytes != 4 && pattern_bytes != 8) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "a pattern of %u bytes", (unsigned)pattern_bytes);
  }
  if (count == 0) return fl_fail(err, FL_INVALID_ARGUMENT, "a fill of 0 patterns");
  if (offset % pattern_bytes != 0) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "offset %llu is no multiple of the pattern's %u bytes",
                   (unsigned long long)offset, (unsigned)pattern_bytes);
  }
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(count, (uint64_t)pattern_bytes, &bytes)) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "the size of a fill overflows");
  }
  char* destination = NULL;
  FL_TRY(ref_arena_locate(&stream->device->arena, base, offset, bytes, "fill", &destination, err));
  fl_engine_item* item = fl_engine_item_new(FL_ITEM_WORK, sizeof(fill_work));
  if (item == NULL) return fl_fail(err, FL_OUT_OF_RESOURCES, "no host memory for another fill");
  fill_work* work = (fill_work*)item->payload;
  work->destination = destination;
  work->pattern = pattern;
  work->pattern_bytes = pattern_bytes;
  work->count = count;
  item->work = run_fill;
  return fl_engine_submit(&stream->engine, item, err);
}
