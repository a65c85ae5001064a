/*
 * arena.h - the memory of one device: which addresses are live, and where the worker finds them.
 *
 * Device addresses lie in [space, space + span). LINEAR: a range reserved with PROT_NONE, so that a host that
 * dereferences one faults at that very address. HANDLE: numbers above the address space of any process. The worker
 * sees the same bytes at `mapping`, committed when touched.
 */
#ifndef FL_REFERENCE_ARENA_H
#define FL_REFERENCE_ARENA_H

#include <pthread.h>
#include <stddef.h>

#include "torch_fl/plugin.h"

#define REF_MAX_ALIGN 65536 /* bytes */

typedef struct ref_block {
  uint64_t base;
  uint64_t bytes; /* as asked for */
  uint64_t end;   /* of what was set aside, >= base + bytes */
} ref_block;

typedef struct ref_range {
  uint64_t begin;
  uint64_t end;
} ref_range;

typedef struct ref_arena {
  uint64_t space;        /* first device address, a multiple of the page size; nothing is allocated there */
  uint64_t span;         /* bytes */
  uint64_t total;        /* bytes that can be allocated */
  uint64_t align;        /* alloc_align */
  char* mapping;         /* of space, for the worker */
  void* reserved;        /* the PROT_NONE range, NULL for HANDLE */
  pthread_mutex_t mutex; /* guards what follows */
  uint64_t used;         /* bytes set aside */
  uint64_t untrimmed;    /* bytes freed since pages were last given back */
  ref_block* blocks;     /* live, by rising base */
  size_t n_blocks;
  size_t blocks_room;
  ref_range* ranges; /* free, by rising address, never touching one another */
  size_t n_ranges;
  size_t ranges_room;
} ref_arena;

/* total: bytes, a multiple of 2 * alloc_align. FL_OUT_OF_RESOURCES when the host has no address space. */
fl_status ref_arena_open(ref_arena* arena, int32_t device_index, uint64_t total, fl_error* err);

/* Live blocks go with it. */
void ref_arena_close(ref_arena* arena);

/* bytes >= 1; alignment: power of two or 0. FL_OUT_OF_MEMORY when no free range is large enough. */
fl_status ref_arena_alloc(ref_arena* arena, uint64_t bytes, uint64_t alignment, uint64_t* out_base, fl_error* err);

/* FL_INVALID_ARGUMENT when (base, bytes) is not a live block. */
fl_status ref_arena_free(ref_arena* arena, uint64_t base, uint64_t bytes, fl_error* err);

uint64_t ref_arena_free_bytes(ref_arena* arena);

/* Worker-side address of the live block that begins at base, and its size; NULL when there is none. */
char* ref_arena_find(ref_arena* arena, uint64_t base, uint64_t* out_bytes);

/* Worker-side address of [base + offset, + bytes) inside one live block, else FL_INVALID_ARGUMENT naming `what`. */
fl_status ref_arena_locate(ref_arena* arena, uint64_t base, uint64_t offset, uint64_t bytes, const char* what,
                           char** out, fl_error* err);

#endif /* FL_REFERENCE_ARENA_H */
