/*
 * core.h - what the sources of the reference vendor's core share: handles, configuration, log, and the functions of
 * the interface that the tables in plugin.c name.
 */
#ifndef FL_REFERENCE_CORE_H
#define FL_REFERENCE_CORE_H

#include "arena.h"
#include "personality.h"
#include "reference.h"
#include "torch_fl/sdk/event_engine.h"
#include "torch_fl/sdk/stream_engine.h"
#include "torch_fl/sdk/stream_wait.h"

#define REF_MAX_DEVICES 64
#define REF_PRIORITY_LEAST 1
#define REF_PRIORITY_GREATEST (-1)

/* Lives until it has been closed and its last stream, destroyed with work pending, is done. */
struct fl_device_s {
  int32_t index;
  atomic_uint references;
  fl_engine_group group;
  ref_arena arena;
};

struct fl_stream_s {
  fl_engine_stream engine; /* first: the engine hands it back as the stream */
  fl_device device;        /* owned reference */
};

struct fl_event_s {
  fl_engine_event engine;
};

/* ---- config.c: what the environment and the options of device_open say ------------------------------------------- */
/* FL_REFERENCE_DEVICES, default 2, read once. FL_FAILED_PRECONDITION naming the variable when it makes no sense. */
fl_status ref_config_devices(int32_t* out, fl_error* err);
/* Bytes of one device: option `memory`, else FL_REFERENCE_MEMORY, else 8 GiB. Options that are not known or make no
 * sense: FL_INVALID_ARGUMENT naming them. */
fl_status ref_config_memory(const char* options, uint64_t* out_bytes, fl_error* err);

/* ---- log.c: called with no lock held ----------------------------------------------------------------------------- */
void ref_log_to(const fl_host* host);
__attribute__((format(printf, 2, 3))) void ref_log(int32_t level, const char* format, ...);

/* ---- device.c ---------------------------------------------------------------------------------------------------- */
fl_status ref_device_count(int32_t* out, fl_error* err);
fl_status ref_device_open(int32_t index, const fl_device_open_args* args, fl_device* out, fl_error* err);
fl_status ref_device_close(fl_device device, fl_error* err);
fl_status ref_device_info(fl_device device, fl_device_info* out, fl_error* err);
fl_status ref_device_sync(fl_device device, uint64_t timeout_ns, fl_error* err);
void ref_device_release(fl_device device);
/* FL_OK, or FL_DEVICE_LOST with its text. */
fl_status ref_device_usable(fl_device device, fl_error* err);

/* ---- memory.c, copy.c -------------------------------------------------------------------------------------------- */
fl_status ref_mem_alloc(fl_device device, const fl_mem_alloc_args* args, uint64_t* out_base, fl_error* err);
fl_status ref_mem_free(fl_device device, uint64_t base, uint64_t bytes, fl_error* err);
fl_status ref_mem_info(fl_device device, uint64_t* out_free, uint64_t* out_total, fl_error* err);
fl_status ref_copy(fl_stream stream, const fl_copy_args* args, fl_error* err);
fl_status ref_fill(fl_stream stream, uint64_t base, uint64_t offset, uint64_t pattern, uint32_t pattern_bytes,
                   uint64_t count, fl_error* err);

/* ---- stream.c, event.c ------------------------------------------------------------------------------------------- */
fl_status ref_stream_create(fl_device device, const fl_stream_create_args* args, fl_stream* out, fl_error* err);
fl_status ref_stream_destroy(fl_stream stream, fl_error* err);
fl_status ref_stream_query(fl_stream stream, fl_error* err);
fl_status ref_stream_sync(fl_stream stream, uint64_t timeout_ns, fl_error* err);
fl_status ref_stream_host_task(fl_stream stream, fl_host_fn fn, void* arg, fl_error* err);
fl_status ref_stream_wait_event(fl_stream stream, fl_event event, fl_error* err);
/* For the group of a device. */
void ref_stream_release(fl_engine_stream* engine);
void ref_stream_failed(fl_engine_stream* engine, fl_status status);

fl_status ref_event_create(fl_device device, const fl_event_create_args* args, fl_event* out, fl_error* err);
fl_status ref_event_destroy(fl_event event, fl_error* err);
fl_status ref_event_record(fl_event event, fl_stream stream, fl_error* err);
fl_status ref_event_query(fl_event event, fl_error* err);
fl_status ref_event_sync(fl_event event, uint64_t timeout_ns, fl_error* err);
fl_status ref_event_elapsed(fl_event start, fl_event end, int64_t* out_ns, fl_error* err);

/* ---- table.c, extension_*.c -------------------------------------------------------------------------------------- */
fl_status ref_kernels(fl_device device, const fl_kernel_table** out, fl_error* err);
extern const fl_pinned_api ref_pinned;
extern const fl_fault_api ref_fault;
/* 1 when all of [pointer, pointer + bytes) lies in one piece of pinned memory. */
int ref_is_pinned(const void* pointer, uint64_t bytes);

#endif /* FL_REFERENCE_CORE_H */
