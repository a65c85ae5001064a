/*
 * arena.c - first fit over a sorted list of free ranges, with immediate coalescing.
 *
 * Bases are odd multiples of the alignment asked for, so that nobody comes to rely on more than was promised
 * [FL-MEM-003]. Sizes are rounded so that the next block of default alignment fits without a gap.
 */
#include "arena.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "personality.h"
#include "torch_fl/sdk/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define REF_POISON(address, bytes) ASAN_POISON_MEMORY_REGION(address, bytes)
#define REF_UNPOISON(address, bytes) ASAN_UNPOISON_MEMORY_REGION(address, bytes)
#else
#define REF_POISON(address, bytes) ((void)(address), (void)(bytes))
#define REF_UNPOISON(address, bytes) ((void)(address), (void)(bytes))
#endif

#define TRIM_BYTES (16u << 20) /* freed bytes after which pages go back to the system */
#define HANDLE_SPACE_BITS 48   /* HANDLE: device i owns the numbers from (i + 1) << 48 */

static char* worker_address(const ref_arena* arena, uint64_t address) {
  return arena->mapping + (address - arena->space);
}

static uint64_t round_up(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

static uint64_t page_bytes(void) { return (uint64_t)sysconf(_SC_PAGESIZE); }

/* Smallest odd multiple of step that is >= value. */
static uint64_t odd_multiple(uint64_t value, uint64_t step) { return round_up(value + step, 2 * step) - step; }

static void* map(uint64_t bytes, int protection) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* address = mmap(NULL, bytes, protection, flags, -1, 0);
  return address == MAP_FAILED ? NULL : address;
}

/* Room for one more block and for the ranges that it and its end of life can make. */
static int make_room(ref_arena* arena) {
  if (arena->n_blocks == arena->blocks_room) {
    size_t room = arena->blocks_room * 2 + 16;
    ref_block* blocks = realloc(arena->blocks, room * sizeof *blocks);
    if (blocks == NULL) return 0;
    arena->blocks = blocks;
    arena->blocks_room = room;
  }
  if (arena->n_blocks + 3 > arena->ranges_room) {
    size_t room = arena->ranges_room * 2 + 16;
    ref_range* ranges = realloc(arena->ranges, room * sizeof *ranges);
    if (ranges == NULL) return 0;
    arena->ranges = ranges;
    arena->ranges_room = room;
  }
  return 1;
}

fl_status ref_arena_open(ref_arena* arena, int32_t device_index, uint64_t total, fl_error* err) {
  memset(arena, 0, sizeof *arena);
  arena->total = total;
  arena->align = ref_this.alloc_align;
  arena->span = round_up(total + arena->align, page_bytes());
  arena->mapping = map(arena->span, PROT_READ | PROT_WRITE);
  if (ref_this.address_model == FL_ADDRESS_LINEAR) {
    arena->reserved = map(arena->span, PROT_NONE);
    arena->space = (uint64_t)(uintptr_t)arena->reserved;
  } else {
    arena->space = (uint64_t)(device_index + 1) << HANDLE_SPACE_BITS;
  }
  int made = make_room(arena);
  if (arena->mapping == NULL || arena->space == 0 || !made) {
    ref_arena_close(arena);
    return fl_fail(err, FL_OUT_OF_RESOURCES, "no address space for %llu bytes of device memory",
                   (unsigned long long)total);
  }
  madvise(arena->mapping, arena->span, MADV_DONTDUMP);
  pthread_mutex_init(&arena->mutex, NULL);
  arena->ranges[0].begin = arena->space + arena->align;
  arena->ranges[0].end = arena->space + arena->align + total;
  arena->n_ranges = 1;
  return FL_OK;
}

void ref_arena_close(ref_arena* arena) {
  if (arena->mapping != NULL) REF_UNPOISON(arena->mapping, arena->span);
  if (arena->mapping != NULL) munmap(arena->mapping, arena->span);
  if (arena->reserved != NULL) munmap(arena->reserved, arena->span);
  if (arena->n_ranges > 0) pthread_mutex_destroy(&arena->mutex);
  free(arena->blocks);
  free(arena->ranges);
}

/* ---- free ranges ------------------------------------------------------------------------------------------------- */

static void insert_range(ref_arena* arena, size_t index, uint64_t begin, uint64_t end) {
  memmove(&arena->ranges[index + 1], &arena->ranges[index], (arena->n_ranges - index) * sizeof(ref_range));
  arena->ranges[index].begin = begin;
  arena->ranges[index].end = end;
  arena->n_ranges += 1;
}

static void remove_range(ref_arena* arena, size_t index) {
  arena->n_ranges -= 1;
  memmove(&arena->ranges[index], &arena->ranges[index + 1], (arena->n_ranges - index) * sizeof(ref_range));
}

/* Takes [base, end) out of range `index`. */
static void carve(ref_arena* arena, size_t index, uint64_t base, uint64_t end) {
  ref_range whole = arena->ranges[index];
  remove_range(arena, index);
  if (end < whole.end) insert_range(arena, index, end, whole.end);
  if (whole.begin < base) insert_range(arena, index, whole.begin, base);
}

/* Gives [begin, end) back, joined with its free neighbours. */
static void release_range(ref_arena* arena, uint64_t begin, uint64_t end) {
  size_t low = 0;
  size_t high = arena->n_ranges;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (arena->ranges[middle].begin < begin) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  insert_range(arena, low, begin, end);
  if (low + 1 < arena->n_ranges && arena->ranges[low + 1].begin == end) {
    arena->ranges[low].end = arena->ranges[low + 1].end;
    remove_range(arena, low + 1);
  }
  if (low > 0 && arena->ranges[low - 1].end == begin) {
    arena->ranges[low - 1].end = arena->ranges[low].end;
    remove_range(arena, low);
  }
}

/* Gives whole free pages back to the system, once enough has been freed to be worth the walk. */
static void trim(ref_arena* arena) {
  if (arena->untrimmed < TRIM_BYTES) return;
  arena->untrimmed = 0;
  uint64_t page = page_bytes();
  for (size_t i = 0; i < arena->n_ranges; i++) {
    uint64_t begin = round_up(arena->ranges[i].begin, page);
    uint64_t end = arena->ranges[i].end / page * page;
    if (begin < end) madvise(worker_address(arena, begin), end - begin, MADV_DONTNEED);
  }
}

/* ---- live blocks ------------------------------------------------------------------------------------------------- */

/* Index of the first live block whose base is >= base. */
static size_t block_position(const ref_arena* arena, uint64_t base) {
  size_t low = 0;
  size_t high = arena->n_blocks;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (arena->blocks[middle].base < base) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/* The live block that begins at base, NULL when there is none. */
static const ref_block* find_block(const ref_arena* arena, uint64_t base) {
  size_t index = block_position(arena, base);
  if (index == arena->n_blocks) return NULL;
  return arena->blocks[index].base == base ? &arena->blocks[index] : NULL;
}

static void insert_block(ref_arena* arena, uint64_t base, uint64_t bytes, uint64_t end) {
  size_t index = block_position(arena, base);
  memmove(&arena->blocks[index + 1], &arena->blocks[index], (arena->n_blocks - index) * sizeof(ref_block));
  arena->blocks[index].base = base;
  arena->blocks[index].bytes = bytes;
  arena->blocks[index].end = end;
  arena->n_blocks += 1;
}

static void remove_block(ref_arena* arena, size_t index) {
  arena->n_blocks -= 1;
  memmove(&arena->blocks[index], &arena->blocks[index + 1], (arena->n_blocks - index) * sizeof(ref_block));
}

/* Base of a block of `bytes` in the first free range that holds one, 0 when none does. */
static uint64_t first_fit(const ref_arena* arena, uint64_t bytes, uint64_t step, size_t* out_index) {
  for (size_t i = 0; i < arena->n_ranges; i++) {
    uint64_t base = odd_multiple(arena->ranges[i].begin, step);
    if (base >= arena->ranges[i].end) continue;
    if (arena->ranges[i].end - base < bytes) continue;
    *out_index = i;
    return base;
  }
  return 0;
}

static uint64_t alloc_locked(ref_arena* arena, uint64_t bytes, uint64_t step) {
  size_t index = 0;
  if (bytes > arena->total) return 0;
  uint64_t base = first_fit(arena, bytes, step, &index);
  if (base == 0) return 0;
  uint64_t end = odd_multiple(base + bytes, arena->align);
  if (end > arena->ranges[index].end) end = arena->ranges[index].end;
  carve(arena, index, base, end);
  insert_block(arena, base, bytes, end);
  arena->used += end - base;
  REF_POISON(worker_address(arena, base), end - base);
  REF_UNPOISON(worker_address(arena, base), bytes);
  return base;
}

fl_status ref_arena_alloc(ref_arena* arena, uint64_t bytes, uint64_t alignment, uint64_t* out_base, fl_error* err) {
  uint64_t step = alignment > arena->align ? alignment : arena->align;
  pthread_mutex_lock(&arena->mutex);
  int room = make_room(arena);
  uint64_t base = room ? alloc_locked(arena, bytes, step) : 0;
  uint64_t left = arena->total - arena->used;
  pthread_mutex_unlock(&arena->mutex);
  if (!room) return fl_fail(err, FL_OUT_OF_RESOURCES, "no host memory for another block");
  if (base == 0) {
    return fl_fail(err, FL_OUT_OF_MEMORY, "no %llu bytes in one piece; %llu of %llu bytes are free",
                   (unsigned long long)bytes, (unsigned long long)left, (unsigned long long)arena->total);
  }
  *out_base = base;
  return FL_OK;
}

fl_status ref_arena_free(ref_arena* arena, uint64_t base, uint64_t bytes, fl_error* err) {
  pthread_mutex_lock(&arena->mutex);
  const ref_block* found = find_block(arena, base);
  int known = found != NULL && found->bytes == bytes;
  if (known) {
    ref_block block = *found;
    remove_block(arena, block_position(arena, base));
    release_range(arena, block.base, block.end);
    arena->used -= block.end - block.base;
    REF_POISON(worker_address(arena, block.base), block.end - block.base);
    arena->untrimmed += block.end - block.base;
    trim(arena);
  }
  pthread_mutex_unlock(&arena->mutex);
  if (known) return FL_OK;
  return fl_fail(err, FL_INVALID_ARGUMENT, "no block of %llu bytes is allocated at 0x%llx", (unsigned long long)bytes,
                 (unsigned long long)base);
}

uint64_t ref_arena_free_bytes(ref_arena* arena) {
  pthread_mutex_lock(&arena->mutex);
  uint64_t free_bytes = arena->total - arena->used;
  pthread_mutex_unlock(&arena->mutex);
  return free_bytes;
}

char* ref_arena_find(ref_arena* arena, uint64_t base, uint64_t* out_bytes) {
  pthread_mutex_lock(&arena->mutex);
  const ref_block* block = find_block(arena, base);
  uint64_t bytes = block != NULL ? block->bytes : 0;
  pthread_mutex_unlock(&arena->mutex);
  if (bytes == 0) return NULL;
  *out_bytes = bytes;
  return worker_address(arena, base);
}

fl_status ref_arena_locate(ref_arena* arena, uint64_t base, uint64_t offset, uint64_t bytes, const char* what,
                           char** out, fl_error* err) {
  uint64_t block_bytes = 0;
  char* data = ref_arena_find(arena, base, &block_bytes);
  if (data == NULL) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: no block is allocated at 0x%llx", what, (unsigned long long)base);
  }
  if (offset > block_bytes || bytes > block_bytes - offset) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "%s: offset %llu + %llu bytes leave the block of %llu bytes", what,
                   (unsigned long long)offset, (unsigned long long)bytes, (unsigned long long)block_bytes);
  }
  *out = data + offset;
  return FL_OK;
}
