/*
 * The small C helper of the driver: host tasks that a plugin may call on its own threads, and loops too
 * hot for Python. A Python callback would need the GIL on a plugin's thread and fail at interpreter exit.
 *
 * The part between the cdef marks is read by cffi together with plugin.h's.
 */
#ifndef TORCH_FL_HELPER_H
#define TORCH_FL_HELPER_H

#include "torch_fl/plugin.h"

/* <cdef> */
/* ---- Gate: a host task that waits, without limit, until the driver opens it ---- */
typedef struct flh_gate flh_gate;
flh_gate* flh_gate_new(void);
void flh_gate_task(void* gate, fl_status status);
void flh_gate_open(flh_gate* gate);
/* Bit 0: entered, bit 1: open, bit 2: done (the task has left). status: as the task was given, or -1. */
uint32_t flh_gate_state(flh_gate* gate, fl_status* status);
/* Waits until the bits are set: 1, or 0 after timeout_ns. */
int32_t flh_gate_wait(flh_gate* gate, uint32_t bits, uint64_t timeout_ns);

/* ---- Record: host tasks append entries in the order in which they run ---- */
typedef struct flh_entry {
  int64_t value;
  int32_t status;
  int32_t pad;
} flh_entry;
typedef struct flh_record flh_record;
flh_record* flh_record_new(uint64_t capacity);
/* A task argument that appends `value`; owned by the record, lives as long. NULL: no memory. */
void* flh_record_ticket(flh_record* record, int64_t value);
void flh_record_task(void* ticket, fl_status status);
/* The same, for tasks of one stream: counts in `overlaps` those that begin while another runs. */
void flh_alone_task(void* ticket, fl_status status);
uint64_t flh_record_overlaps(flh_record* record);
uint64_t flh_record_count(flh_record* record);
/* Copies at most `capacity` entries; returns how many. */
uint64_t flh_record_read(flh_record* record, flh_entry* out, uint64_t capacity);

/* ---- Log: an fl_log_fn that keeps the last 64 messages, cut to 255 bytes ---- */
void flh_log(void* user, int32_t level, const char* message);
/* Hold and release the sink's (recursive) lock on this thread. */
void flh_log_lock(void);
void flh_log_unlock(void);
uint64_t flh_log_count(void);
/* Message `number` (counted from 0, one of the last 64); returns its level. */
int32_t flh_log_read(uint64_t number, char* text, uint64_t capacity);

/* ---- Loops: `threads` is at most 16; `out` is added to ---- */
typedef struct flh_outcome {
  uint64_t calls;
  uint64_t failures; /* calls whose status was not the expected one */
  uint64_t wrong;    /* results that break a rule: overlap, misalignment, foreign text, negative time */
  fl_status first_failure;
  int32_t pad;
} flh_outcome;

/* Random alloc and free; each thread holds up to 64 blocks, all are gone in the end.
 * wrong: base 0, misaligned, or overlapping a live block of any thread. */
void flh_alloc_storm(const fl_plugin* plugin, fl_device device, uint64_t threads, uint64_t count, uint64_t max_bytes,
                     uint64_t alloc_align, uint64_t max_align, uint64_t seed, flh_outcome* out);

#define FLH_CYCLE_STREAM 0
#define FLH_CYCLE_EVENT 1
#define FLH_CYCLE_ALLOC 2
#define FLH_CYCLE_FAILED_ALLOC 3 /* bytes: more than there is; wrong: it was granted */
/* Creates and destroys `count` times on each thread. */
void flh_cycle(const fl_plugin* plugin, fl_device device, uint64_t what, uint64_t threads, uint64_t count,
               uint64_t bytes, flh_outcome* out);

#define FLH_WORK 0           /* copies, fill, host task, record and wait that complete */
#define FLH_WORK_DESTROYED 1 /* the same in a stream and with an event that are destroyed at once */
#define FLH_WORK_REFUSED 2   /* calls of every kind that must fail; wrong: those that didn't */
/* `count` times; the memory of `bytes` that they work on is gone in the end. */
void flh_work_cycle(const fl_plugin* plugin, fl_device device, uint64_t what, uint64_t count, uint64_t bytes,
                    flh_outcome* out);

/* Thread k submits host tasks with tickets k * count ... and, where base is not 0, after each of them a fill of
 * the 64-bit word k at base with 1, 2, ... */
void flh_submit_storm(const fl_plugin* plugin, fl_stream stream, flh_record* record, uint64_t threads, uint64_t count,
                      uint64_t base, flh_outcome* out);

/* Even threads create streams of priority INT32_MAX, odd ones allocate 0 bytes. failures: calls that succeeded;
 * wrong: the text is not the one that the same call gives alone, before and after, or its length is not `length`. */
void flh_error_storm(const fl_plugin* plugin, fl_device device, uint64_t threads, uint64_t count, flh_outcome* out);

/* Records two TIMING events, syncs and reads; returns the least elapsed time in ns. wrong: below 0. */
int64_t flh_elapsed_storm(const fl_plugin* plugin, fl_event start, fl_event end, fl_stream stream, uint64_t count,
                          flh_outcome* out);

/* ---- Process state: digests, except signal_mask, floating_point (this thread's control bits) and umask ---- */
typedef struct flh_state {
  uint64_t signals; /* dispositions */
  uint64_t signal_mask;
  uint64_t floating_point;
  uint64_t environment;
  uint64_t directory;
  uint64_t locale;
  uint64_t limits;
  uint64_t umask;
} flh_state;
void flh_process_state(flh_state* out);
/* Bytes that malloc has given out in this process and not got back, in all its arenas, and those that threads keep for
 * their next calls; 0 where malloc cannot tell. */
uint64_t flh_heap_bytes(void);
/* Calls shutdown from an exit handler; 0 when registered. */
int32_t flh_shutdown_at_exit(const fl_plugin* plugin);

uint64_t flh_now(void); /* CLOCK_MONOTONIC, nanoseconds */

/* ---- For the judge's oracles, what numpy lacks: y[i] = erf(x[i]) ---- */
void flh_erf(const double* x, double* y, uint64_t count);
void flh_erfl(const long double* x, long double* y, uint64_t count);
/* </cdef> */

#endif /* TORCH_FL_HELPER_H */
