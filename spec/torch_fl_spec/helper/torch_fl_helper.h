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
  int64_t nanoseconds; /* CLOCK_MONOTONIC */
  int64_t thread;      /* kernel thread id */
  int32_t status;
  int32_t pad;
} flh_entry;
typedef struct flh_record flh_record;
flh_record* flh_record_new(uint64_t capacity);
/* A task argument that appends `value`; owned by the record, lives as long. NULL: no memory. */
void* flh_record_ticket(flh_record* record, int64_t value);
void flh_record_task(void* ticket, fl_status status);
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

uint64_t flh_now(void); /* CLOCK_MONOTONIC, nanoseconds */
/* </cdef> */

#endif /* TORCH_FL_HELPER_H */
