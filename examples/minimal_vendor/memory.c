/* memory.c - allocation, copies and fills. Device memory is host memory, handed out up to MIN_TOTAL bytes. */
#include "minimal.h"

static fl_status check_alloc(const fl_mem_alloc_args* args, fl_error* err) {
  FL_TRY(fl_check_struct(args, FL_KIND_MEM_ALLOC_ARGS, FL_SIZE_V1_0_MEM_ALLOC_ARGS, "mem_alloc args", err));
  FL_TRY(fl_check_chain(args->next, err));
  FL_TRY(fl_check_flags(args->flags, 0, "mem_alloc", err));
  if (args->space != FL_ALLOC_DEVICE) {
    return fl_fail(err, FL_UNIMPLEMENTED, "memory space %u is unknown", (unsigned)args->space);
  }
  if (args->bytes == 0) return fl_fail(err, FL_INVALID_ARGUMENT, "an allocation of 0 bytes");
  if ((args->alignment & (args->alignment - 1)) != 0 || args->alignment > MIN_MAX_ALIGN) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "alignment %llu is no power of two up to %d",
                   (unsigned long long)args->alignment, MIN_MAX_ALIGN);
  }
  return FL_OK;
}

static fl_status mem_alloc(fl_device device, const fl_mem_alloc_args* args, uint64_t* out_base, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  FL_TRY(fl_check_pointer(out_base, "out_base", err));
  FL_TRY(check_alloc(args, err));
  min_block* block = malloc(sizeof *block);
  if (block == NULL) return fl_fail(err, FL_OUT_OF_RESOURCES, "no host memory for another block");
  void* memory = NULL;
  pthread_mutex_lock(&device->mutex);
  if (args->bytes <= MIN_TOTAL - device->used) {
    size_t align = args->alignment > MIN_ALIGN ? args->alignment : MIN_ALIGN;
    if (posix_memalign(&memory, align, args->bytes) != 0) memory = NULL;
  }
  if (memory != NULL) {
    *block = (min_block){device->blocks, (uint64_t)(uintptr_t)memory, args->bytes};
    device->blocks = block;
    device->used += args->bytes;
    *out_base = block->base;
  }
  pthread_mutex_unlock(&device->mutex);
  if (memory != NULL) return FL_OK;
  free(block);
  return fl_fail(err, FL_OUT_OF_MEMORY, "no %llu bytes are free", (unsigned long long)args->bytes);
}

static void free_block(fl_device device, min_block** link) {
  min_block* block = *link;
  *link = block->next;
  device->used -= block->bytes;
  free((void*)(uintptr_t)block->base);
  free(block);
}

static fl_status mem_free(fl_device device, uint64_t base, uint64_t bytes, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  pthread_mutex_lock(&device->mutex);
  min_block** link = &device->blocks;
  while (*link != NULL && ((*link)->base != base || (*link)->bytes != bytes)) link = &(*link)->next;
  int found = *link != NULL;
  if (found) free_block(device, link);
  pthread_mutex_unlock(&device->mutex);
  if (found) return FL_OK;
  return fl_fail(err, FL_INVALID_ARGUMENT, "no block of %llu bytes begins at 0x%llx", (unsigned long long)bytes,
                 (unsigned long long)base);
}

void min_free_all(fl_device device) {
  while (device->blocks != NULL) free_block(device, &device->blocks);
}

static fl_status mem_info(fl_device device, uint64_t* out_free, uint64_t* out_total, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  FL_TRY(fl_check_pointer(out_free, "out_free", err));
  FL_TRY(fl_check_pointer(out_total, "out_total", err));
  pthread_mutex_lock(&device->mutex);
  *out_free = MIN_TOTAL - device->used;
  pthread_mutex_unlock(&device->mutex);
  *out_total = MIN_TOTAL;
  return FL_OK;
}

fl_status min_locate(fl_device device, uint64_t base, uint64_t offset, uint64_t bytes, char** out, fl_error* err) {
  pthread_mutex_lock(&device->mutex);
  const min_block* block = device->blocks;
  while (block != NULL && block->base != base) block = block->next;
  int inside = block != NULL && offset <= block->bytes && bytes <= block->bytes - offset;
  pthread_mutex_unlock(&device->mutex);
  if (!inside) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%llu bytes at 0x%llx + %llu are in no block", (unsigned long long)bytes,
                   (unsigned long long)base, (unsigned long long)offset);
  }
  *out = (char*)(uintptr_t)(base + offset);
  return FL_OK;
}

/* ---- copy -------------------------------------------------------------------------------------------------------- */

typedef struct copy_work {
  char* destination;
  const char* source; /* NULL: the bytes follow */
  uint64_t bytes;
  char captured[];
} copy_work;

static fl_status run_copy(void* payload) {
  const copy_work* work = payload;
  memcpy(work->destination, work->source != NULL ? work->source : work->captured, work->bytes);
  return FL_OK;
}

static fl_status check_copy(const fl_copy_args* args, fl_error* err) {
  FL_TRY(fl_check_struct(args, FL_KIND_COPY_ARGS, FL_SIZE_V1_0_COPY_ARGS, "copy args", err));
  FL_TRY(fl_check_chain(args->next, err));
  if (args->dst_space > FL_SPACE_DEVICE || args->src_space > FL_SPACE_DEVICE) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "a copy from or to an unknown space");
  }
  if (args->dst_space == FL_SPACE_HOST && args->src_space == FL_SPACE_HOST) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "a copy from host to host");
  }
  if (args->bytes == 0) return fl_fail(err, FL_INVALID_ARGUMENT, "a copy of 0 bytes");
  if (args->dst_space == args->src_space && args->dst_base == args->src_base) {
    uint64_t low = args->dst_offset < args->src_offset ? args->dst_offset : args->src_offset;
    uint64_t high = args->dst_offset < args->src_offset ? args->src_offset : args->dst_offset;
    if (high - low < args->bytes) return fl_fail(err, FL_INVALID_ARGUMENT, "source and destination overlap");
  }
  return FL_OK;
}

static fl_status copy_side(fl_stream stream, uint32_t space, fl_device device, uint64_t base, uint64_t offset,
                           uint64_t bytes, char** out, fl_error* err) {
  if (space == FL_SPACE_DEVICE) {
    if (device != stream->device) return fl_fail(err, FL_INVALID_ARGUMENT, "the copy names another device");
    return min_locate(device, base, offset, bytes, out, err);
  }
  uint64_t end = 0;
  if (base == 0 || __builtin_add_overflow(base, offset, &end) || __builtin_add_overflow(end, bytes, &end)) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "no host range begins at 0x%llx", (unsigned long long)base);
  }
  *out = (char*)(uintptr_t)(base + offset);
  return FL_OK;
}

static fl_status mem_copy(fl_stream stream, const fl_copy_args* args, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(stream, "stream", err));
  FL_TRY(check_copy(args, err));
  char* source = NULL;
  char* destination = NULL;
  FL_TRY(copy_side(stream, args->src_space, args->src_device, args->src_base, args->src_offset, args->bytes, &source,
                   err));
  FL_TRY(copy_side(stream, args->dst_space, args->dst_device, args->dst_base, args->dst_offset, args->bytes,
                   &destination, err));
  /* Ordinary host memory is the host's again when this returns [FL-COPY-002]. */
  uint64_t captured = args->src_space == FL_SPACE_HOST ? args->bytes : 0;
  fl_engine_item* item = fl_engine_item_new(FL_ITEM_WORK, sizeof(copy_work) + captured);
  if (item == NULL) return fl_fail(err, FL_OUT_OF_RESOURCES, "no host memory for another copy");
  copy_work* work = (copy_work*)item->payload;
  work->destination = destination;
  work->source = captured > 0 ? NULL : source;
  work->bytes = args->bytes;
  memcpy(work->captured, source, captured);
  item->work = run_copy;
  return fl_engine_submit(&stream->engine, item, err);
}

/* ---- fill -------------------------------------------------------------------------------------------------------- */

typedef struct fill_work {
  char* destination;
  uint64_t pattern; /* little-endian: its low bytes come first */
  uint64_t count;
  uint32_t pattern_bytes;
} fill_work;

static fl_status run_fill(void* payload) {
  const fill_work* work = payload;
  for (uint64_t i = 0; i < work->count; i++) {
    memcpy(work->destination + i * work->pattern_bytes, &work->pattern, work->pattern_bytes);
  }
  return FL_OK;
}

static fl_status mem_fill(fl_stream stream, uint64_t base, uint64_t offset, uint64_t pattern, uint32_t pattern_bytes,
                          uint64_t count, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(stream, "stream", err));
  if (pattern_bytes != 1 && pattern_bytes != 2 && pattern_bytes != 4 && pattern_bytes != 8) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "a pattern of %u bytes", (unsigned)pattern_bytes);
  }
  uint64_t bytes = 0;
  if (count == 0 || offset % pattern_bytes != 0 || __builtin_mul_overflow(count, (uint64_t)pattern_bytes, &bytes)) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%llu patterns of %u bytes at offset %llu", (unsigned long long)count,
                   (unsigned)pattern_bytes, (unsigned long long)offset);
  }
  fill_work work = {NULL, pattern, count, pattern_bytes};
  FL_TRY(min_locate(stream->device, base, offset, bytes, &work.destination, err));
  return min_submit(stream, run_fill, &work, sizeof work, err);
}

const fl_memory_api min_memory_api = {
    .struct_size = sizeof(fl_memory_api),
    .kind = FL_KIND_MEMORY_API,
    .alloc = mem_alloc,
    .free = mem_free,
    .info = mem_info,
    .copy = mem_copy,
    .fill = mem_fill,
};
