/* extension_pinned.c - "fl.pinned": host memory that copies read and write in place. */
#include <stdlib.h>

#include "core.h"

typedef struct pinned_range {
  struct pinned_range* next;
  uintptr_t begin;
  uint64_t bytes;
  int owned; /* from alloc, not register_range */
} pinned_range;

static pthread_mutex_t pinned_mutex = PTHREAD_MUTEX_INITIALIZER;
static pinned_range* pinned_first;

int ref_is_pinned(const void* pointer, uint64_t bytes) {
  uintptr_t begin = (uintptr_t)pointer;
  int found = 0;
  pthread_mutex_lock(&pinned_mutex);
  for (const pinned_range* range = pinned_first; range != NULL && !found; range = range->next) {
    uint64_t offset = begin - range->begin;
    found = begin >= range->begin && offset < range->bytes && bytes <= range->bytes - offset;
  }
  pthread_mutex_unlock(&pinned_mutex);
  return found;
}

/* Adds a range; 0 when it meets one that is there already. Takes the range on success. */
static int add_range(pinned_range* added) {
  int meets = 0;
  pthread_mutex_lock(&pinned_mutex);
  for (const pinned_range* range = pinned_first; range != NULL; range = range->next) {
    if (added->begin < range->begin + range->bytes && range->begin < added->begin + added->bytes) meets = 1;
  }
  if (!meets) {
    added->next = pinned_first;
    pinned_first = added;
  }
  pthread_mutex_unlock(&pinned_mutex);
  return !meets;
}

/* Takes the range that begins at pointer out of the list, NULL when there is none of this kind. */
static pinned_range* remove_range(const void* pointer, int owned) {
  pthread_mutex_lock(&pinned_mutex);
  pinned_range** link = &pinned_first;
  while (*link != NULL && ((*link)->begin != (uintptr_t)pointer || (*link)->owned != owned)) link = &(*link)->next;
  pinned_range* range = *link;
  if (range != NULL) *link = range->next;
  pthread_mutex_unlock(&pinned_mutex);
  return range;
}

static pinned_range* new_range(const void* pointer, uint64_t bytes, int owned) {
  pinned_range* range = calloc(1, sizeof *range);
  if (range == NULL) return NULL;
  range->begin = (uintptr_t)pointer;
  range->bytes = bytes;
  range->owned = owned;
  return range;
}

static fl_status pinned_alloc(fl_device device, uint64_t bytes, void** out, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  FL_TRY(fl_check_pointer(out, "out", err));
  if (bytes == 0) return fl_fail(err, FL_INVALID_ARGUMENT, "an allocation of 0 bytes");
  void* pointer = NULL;
  if (bytes > PTRDIFF_MAX || posix_memalign(&pointer, 64, bytes) != 0) {
    return fl_fail(err, FL_OUT_OF_MEMORY, "the host has no %llu bytes", (unsigned long long)bytes);
  }
  pinned_range* range = new_range(pointer, bytes, 1);
  if (range == NULL || !add_range(range)) {
    free(range);
    free(pointer);
    return fl_fail(err, FL_OUT_OF_RESOURCES, "no host memory for another range");
  }
  *out = pointer;
  return FL_OK;
}

static fl_status pinned_free(fl_device device, void* pointer, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  FL_TRY(fl_check_pointer(pointer, "pointer", err));
  pinned_range* range = remove_range(pointer, 1);
  if (range == NULL) return fl_fail(err, FL_INVALID_ARGUMENT, "the pointer does not come from fl.pinned alloc");
  free(range);
  free(pointer);
  return FL_OK;
}

static fl_status pinned_register(fl_device device, void* pointer, uint64_t bytes, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  FL_TRY(fl_check_pointer(pointer, "pointer", err));
  if (bytes == 0) return fl_fail(err, FL_INVALID_ARGUMENT, "a range of 0 bytes");
  if (bytes > UINTPTR_MAX - (uintptr_t)pointer) return fl_fail(err, FL_INVALID_ARGUMENT, "the range wraps around");
  pinned_range* range = new_range(pointer, bytes, 0);
  if (range == NULL) return fl_fail(err, FL_OUT_OF_RESOURCES, "no host memory for another range");
  if (add_range(range)) return FL_OK;
  free(range);
  return fl_fail(err, FL_INVALID_ARGUMENT, "the range meets pinned memory");
}

static fl_status pinned_unregister(fl_device device, void* pointer, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(device, "device", err));
  FL_TRY(fl_check_pointer(pointer, "pointer", err));
  pinned_range* range = remove_range(pointer, 0);
  if (range == NULL) return fl_fail(err, FL_INVALID_ARGUMENT, "the pointer is not registered");
  free(range);
  return FL_OK;
}

static fl_status pinned_is_pinned(const void* pointer, int32_t* out, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(out, "out", err));
  *out = ref_is_pinned(pointer, 1);
  return FL_OK;
}

const fl_pinned_api ref_pinned = {
    .struct_size = sizeof(fl_pinned_api),
    .kind = FL_KIND_EXT_PINNED,
    .revision = 1,
    .alloc = pinned_alloc,
    .free = pinned_free,
    .register_range = pinned_register,
    .unregister_range = pinned_unregister,
    .is_pinned = pinned_is_pinned,
};
