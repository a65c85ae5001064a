/*
 * minimal.h - what the sources of the minimal vendor share.
 *
 * The device is the CPU: one device, LINEAR addresses that the host may read, and ASYNC streams from the SDK's engine.
 * Replace memory.c by your allocator and copy engine, stream.c by your queues, kernels.c by your kernels; plugin.c and
 * most of device.c stay as they are.
 */
#ifndef MINIMAL_H
#define MINIMAL_H

#include "torch_fl/plugin.h"
#include "torch_fl/sdk/args.h"
#include "torch_fl/sdk/error.h"
#include "torch_fl/sdk/event_engine.h"
#include "torch_fl/sdk/iterator.h"
#include "torch_fl/sdk/stream_engine.h"
#include "torch_fl/sdk/stream_wait.h"

#define MIN_ALIGN 64             /* bytes, of every base */
#define MIN_MAX_ALIGN 4096       /* bytes, the largest alignment that alloc honours */
#define MIN_TOTAL (256ull << 20) /* bytes of the device */
#define MIN_MAX_NDIM FL_ITER_MAX_NDIM

typedef struct min_block {
  struct min_block* next;
  uint64_t base; /* a host address */
  uint64_t bytes;
} min_block;

/* Lives until it is closed and its last stream, destroyed with work pending, is done. */
struct fl_device_s {
  atomic_uint references;
  fl_engine_group group;
  pthread_mutex_t mutex; /* guards what follows */
  min_block* blocks;
  uint64_t used; /* bytes */
};

struct fl_stream_s {
  fl_engine_stream engine; /* first: the engine hands it back as the stream */
  fl_device device;        /* owned reference */
};

struct fl_event_s {
  fl_engine_event engine;
};

/* device.c: a stream holds its device. */
void min_device_retain(fl_device device);
void min_device_release(fl_device device);

/* memory.c: the bytes [base + offset, + bytes) where they lie inside one live block, else FL_INVALID_ARGUMENT. */
fl_status min_locate(fl_device device, uint64_t base, uint64_t offset, uint64_t bytes, char** out, fl_error* err);
/* Gives back what the host did not. */
void min_free_all(fl_device device);

/* stream.c: work(copy of payload) in stream order; everything that can be wrong is found before. */
fl_status min_submit(fl_stream stream, fl_work_fn work, const void* payload, uint64_t bytes, fl_error* err);
/* The last reference to a stream is gone. */
void min_stream_release(fl_engine_stream* engine);

/* kernels.c: element 0 of a checked tensor, NULL where it has no elements. */
fl_status min_tensor_data(fl_stream stream, const fl_tensor* tensor, char** out, fl_error* err);
/* FL_OK when the kernel has a row for the dtype, else FL_UNIMPLEMENTED. */
fl_status min_check_row(const fl_kernel* kernel, uint32_t dtype, fl_error* err);

/* pointwise.c: operators, `user` of their kernels. */
typedef struct min_pointwise min_pointwise;
extern const min_pointwise min_add, min_mul, min_relu, min_clamp, min_remainder;
fl_status min_pointwise_plan(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                             fl_error* err);
fl_status min_pointwise_run(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err);

/* The five tables of the interface. */
extern const fl_device_api min_device_api;
extern const fl_memory_api min_memory_api;
extern const fl_stream_api min_stream_api;
extern const fl_event_api min_event_api;
extern const fl_kernel_api min_kernel_api;

#endif /* MINIMAL_H */
