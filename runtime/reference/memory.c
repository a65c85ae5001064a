/* memory.c - allocation of device memory. */
#include "core.h"

static int is_power_of_two(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

fl_status ref_mem_alloc(fl_device device, const fl_mem_alloc_args* args, uint64_t* out_base, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  FL_TRY(fl_check_pointer(out_base, "out_base", err));
  FL_TRY(fl_check_struct(args, FL_KIND_MEM_ALLOC_ARGS, FL_SIZE_V1_0_MEM_ALLOC_ARGS, "mem_alloc args", err));
  FL_TRY(fl_check_chain(args->next, err));
  FL_TRY(fl_check_flags(args->flags, 0, "mem_alloc", err));
  if (args->space != FL_ALLOC_DEVICE) {
    return fl_fail(err, FL_UNIMPLEMENTED, "memory space %u is unknown", (unsigned)args->space);
  }
  if (args->bytes == 0) return fl_fail(err, FL_INVALID_ARGUMENT, "an allocation of 0 bytes");
  if (args->alignment != 0 && !is_power_of_two(args->alignment)) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "alignment %llu is no power of two", (unsigned long long)args->alignment);
  }
  if (args->alignment > REF_MAX_ALIGN) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "alignment %llu is above %d", (unsigned long long)args->alignment,
                   REF_MAX_ALIGN);
  }
  FL_TRY(ref_device_usable(device, err));
  uint64_t base = 0;
  fl_status status = ref_arena_alloc(&device->arena, args->bytes, args->alignment, &base, err);
  if (status == FL_OUT_OF_MEMORY) {
    ref_log(FL_LOG_DEBUG, "%s: device %d has no %llu bytes in one piece", ref_plugin_name, (int)device->index,
            (unsigned long long)args->bytes);
  }
  if (status != FL_OK) return status;
  *out_base = base;
  return FL_OK;
}

fl_status ref_mem_free(fl_device device, uint64_t base, uint64_t bytes, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  return ref_arena_free(&device->arena, base, bytes, err);
}

fl_status ref_mem_info(fl_device device, uint64_t* out_free, uint64_t* out_total, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  FL_TRY(fl_check_pointer(out_free, "out_free", err));
  FL_TRY(fl_check_pointer(out_total, "out_total", err));
  *out_free = ref_arena_free_bytes(&device->arena);
  *out_total = device->arena.total;
  return FL_OK;
}
