/*
 * torch_fl/plugin.h - the Torch-FL vendor interface, version 1.0-candidate.
 *
 * A vendor implements this file in one shared library that exports exactly one symbol,
 * fl_plugin_query_v1. SPEC.md is normative; rule ids (FL-MEM-003) in comments refer to it.
 *
 * Conventions that hold for every function and struct below:
 *  - Every growable struct begins with struct_size (bytes, as known to its producer) and kind
 *    (FL_KIND_*). A consumer reads a field only if struct_size reaches its end. A callee rejects
 *    a struct only for a wrong kind or a struct_size below FL_SIZE_V1_0_<STRUCT>  [FL-LAYOUT-003, 005, 006].
 *  - Struct parameters named `out` are allocated by the host with struct_size and kind filled;
 *    the plugin writes only fields that end within struct_size and leaves these two as they are.
 *  - Every pointer in a call is borrowed for that call only [FL-THREAD-008]. Strings that the plugin
 *    returns are UTF-8, NUL-terminated and live until the process ends [FL-LAYOUT-009].
 *  - Fallible functions return fl_status. `err` may be NULL. On failure nothing has changed, outputs
 *    are untouched; on success `err` is untouched [FL-ERROR-001, 003].
 *  - No function depends on the calling thread; any thread may make any call [FL-THREAD-001, 002].
 *  - Unknown flag bits: FL_INVALID_ARGUMENT. Unknown fl_ext nodes: FL_UNIMPLEMENTED when they carry
 *    FL_EXT_REQUIRED, else skipped [FL-LAYOUT-007].
 *  - LP64, little-endian only [FL-LAYOUT-002].
 *
 * The part between the cdef marks is read verbatim by cffi, C11 and C++17: fixed-width integers,
 * double, pointers, structs, unions, function pointers and plain literals, nothing else [FL-LAYOUT-001].
 */
#ifndef TORCH_FL_PLUGIN_H
#define TORCH_FL_PLUGIN_H

#include <stdint.h>

/* sha256 of this file with this one line removed and LF line ends [FL-VERSION-006]. */
#define FL_HEADER_ID "cef2a363bf864c8889a30185605914457303de305069637abfc02c5f9bb8fc23"

#ifdef __cplusplus
extern "C" {
#endif

/* <cdef> */
#define FL_ABI_MAJOR 1
#define FL_ABI_MINOR 0

/* ---- Status: what each code makes the host do [FL-ERROR-002] ------------------------------- */
typedef int32_t fl_status;

#define FL_OK 0
#define FL_NOT_READY 1           /* not an error: the queried work is still pending */
#define FL_INVALID_ARGUMENT 2    /* raise */
#define FL_FAILED_PRECONDITION 3 /* raise */
#define FL_OUT_OF_RESOURCES 4    /* raise: streams, events, threads */
#define FL_INTERNAL 5            /* raise; unknown codes count as this one */
#define FL_OUT_OF_MEMORY 6       /* flush the host's pool, retry once, then raise */
#define FL_UNIMPLEMENTED 7       /* next variant, then fallback */
#define FL_TIMEOUT 8             /* call again */
#define FL_ASYNC_FAILURE 9       /* an earlier operation of the stream failed: stream poisoned */
#define FL_DEVICE_LOST 10        /* device poisoned */

/* ---- Kinds: the frozen tag of each growable struct ------------------------------------------ */
#define FL_KIND_ERROR 1
#define FL_KIND_HOST 2
#define FL_KIND_PLUGIN 3
#define FL_KIND_DEVICE_API 4
#define FL_KIND_MEMORY_API 5
#define FL_KIND_STREAM_API 6
#define FL_KIND_EVENT_API 7
#define FL_KIND_KERNEL_API 8
#define FL_KIND_DEVICE_OPEN_ARGS 9
#define FL_KIND_DEVICE_INFO 10
#define FL_KIND_MEM_ALLOC_ARGS 11
#define FL_KIND_COPY_ARGS 12
#define FL_KIND_STREAM_CREATE_ARGS 13
#define FL_KIND_EVENT_CREATE_ARGS 14
#define FL_KIND_KERNEL_TABLE 15
#define FL_KIND_KERNEL 16
#define FL_KIND_KERNEL_ROW 17
#define FL_KIND_TENSOR 18
#define FL_KIND_CALL 19
#define FL_KIND_PLAN 20
#define FL_KIND_EXT_PINNED 64
#define FL_KIND_EXT_FAULT 65
#define FL_KIND_EXT_NODE_FIRST 1024 /* fl_ext nodes of args chains start here; none in 1.0 */

/* ---- Element types: frozen numbers, unknown ones count as unsupported ------------------------ */
#define FL_DTYPE_NONE 0
#define FL_DTYPE_BOOL 1 /* one byte, 0 or 1 */
#define FL_DTYPE_U8 2
#define FL_DTYPE_I8 3
#define FL_DTYPE_I16 4
#define FL_DTYPE_I32 5
#define FL_DTYPE_I64 6
#define FL_DTYPE_U16 7
#define FL_DTYPE_U32 8
#define FL_DTYPE_U64 9
#define FL_DTYPE_F16 10
#define FL_DTYPE_BF16 11
#define FL_DTYPE_F32 12
#define FL_DTYPE_F64 13
#define FL_DTYPE_C32 14 /* pair of F16 */
#define FL_DTYPE_C64 15 /* pair of F32 */
#define FL_DTYPE_C128 16 /* pair of F64 */
#define FL_DTYPE_F8E4M3FN 17
#define FL_DTYPE_F8E5M2 18

/* ---- Opaque handles: created and destroyed by the plugin, NULL is never valid ----------------- */
typedef struct fl_device_s* fl_device;
typedef struct fl_stream_s* fl_stream;
typedef struct fl_event_s* fl_event;

/* ---- Error text, owned by the host [FL-ERROR-001] ---------------------------------------------- */
typedef struct fl_error {
  uint32_t struct_size;
  uint32_t kind;       /* FL_KIND_ERROR */
  fl_status code;      /* the returned status */
  uint32_t pad;        /* 0 */
  int64_t vendor_code; /* the vendor's own number, 0 if none */
  char* message;       /* host buffer of `capacity` bytes; NULL when capacity is 0 */
  uint64_t capacity;   /* bytes, the NUL included */
  uint64_t length;     /* bytes stored, without the NUL; text is cut at a UTF-8 boundary */
} fl_error;
#define FL_SIZE_V1_0_ERROR 48

/* ---- Argument chains ---------------------------------------------------------------------------- */
#define FL_EXT_REQUIRED 1
typedef struct fl_ext {
  uint32_t struct_size;
  uint32_t kind;
  uint32_t flags; /* FL_EXT_REQUIRED or 0 */
  uint32_t pad;   /* 0 */
  const struct fl_ext* next;
} fl_ext;
#define FL_SIZE_V1_0_EXT 24

/* ---- Handshake ------------------------------------------------------------------------------------ */
#define FL_LOG_ERROR 0
#define FL_LOG_WARNING 1
#define FL_LOG_INFO 2
#define FL_LOG_DEBUG 3
/* Called with no plugin lock held; may be called from any thread [FL-THREAD-004]. */
typedef void (*fl_log_fn)(void* user, int32_t level, const char* message);

typedef struct fl_host {
  uint32_t struct_size;
  uint32_t kind;    /* FL_KIND_HOST */
  uint32_t minor;   /* informational: no behaviour may depend on it [FL-VERSION-002] */
  uint32_t pad;     /* 0 */
  const char* name; /* the host's name, nullable; valid until the process ends */
  fl_log_fn log;    /* nullable; valid until the process ends */
  void* log_user;
} fl_host;
#define FL_SIZE_V1_0_HOST 40

/* ---- Device ------------------------------------------------------------------------------------- */
typedef struct fl_device_open_args {
  uint32_t struct_size;
  uint32_t kind; /* FL_KIND_DEVICE_OPEN_ARGS */
  const fl_ext* next;
  const char* options; /* "key=value;key=value", NULL or "" for none; unknown key: FL_INVALID_ARGUMENT naming it */
} fl_device_open_args;
#define FL_SIZE_V1_0_DEVICE_OPEN_ARGS 24

#define FL_EXEC_ASYNC 1  /* submits return before completion, even behind a stalled stream [FL-STREAM-008] */
#define FL_EXEC_INLINE 2 /* submits return after completion */
#define FL_ADDRESS_LINEAR 1 /* base + offset is a device address */
#define FL_ADDRESS_HANDLE 2 /* base names a block; only (base, offset) pairs have meaning */

typedef struct fl_device_info {
  uint32_t struct_size;
  uint32_t kind;            /* FL_KIND_DEVICE_INFO */
  const char* name;         /* product name */
  uint8_t uuid[16];         /* the same card has the same uuid on every start */
  int32_t numa_node;        /* -1 unknown */
  uint32_t execution_model; /* FL_EXEC_* */
  uint32_t independent_streams; /* 1: a stalled stream stops no other [FL-STREAM-009] */
  int32_t priority_least;   /* >= 0 */
  int32_t priority_greatest; /* <= 0: lower is more urgent [FL-STREAM-011] */
  uint32_t address_model;   /* FL_ADDRESS_* */
  uint64_t alloc_align;     /* bytes, power of two, 64 ... 65536: every base is a multiple of it */
  uint64_t max_align;       /* bytes, power of two: the largest alignment mem_alloc honours */
  uint32_t alloc_may_wait;  /* 1: alloc and free may wait for device work [FL-STREAM-007] */
  uint32_t host_accessible; /* 1: LINEAR and base + offset is a host address, valid after a stream sync */
  uint64_t total_bytes;
  uint64_t timer_resolution_ns;
} fl_device_info;
#define FL_SIZE_V1_0_DEVICE_INFO 96

typedef struct fl_device_api {
  uint32_t struct_size;
  uint32_t kind; /* FL_KIND_DEVICE_API */
  /* Number of devices, 0 when there is none. May load the driver; opens no device; within 1 s. */
  fl_status (*count)(int32_t* out, fl_error* err);
  /* One handle per index at a time; a second open of the same index: FL_FAILED_PRECONDITION. */
  fl_status (*open)(int32_t index, const fl_device_open_args* args, fl_device* out, fl_error* err);
  /* Every stream and event of the device has been destroyed and all memory freed before. */
  fl_status (*close)(fl_device device, fl_error* err);
  fl_status (*info)(fl_device device, fl_device_info* out, fl_error* err);
  /* Returns when all work submitted to any stream of the device before the call has completed.
   * timeout_ns: 0 polls, UINT64_MAX waits without limit; FL_TIMEOUT when it passes first. */
  fl_status (*sync)(fl_device device, uint64_t timeout_ns, fl_error* err);
} fl_device_api;
#define FL_SIZE_V1_0_DEVICE_API 48

/* ---- Memory ---------------------------------------------------------------------------------------- */
#define FL_SPACE_HOST 0   /* in fl_copy_args: base is a host pointer */
#define FL_SPACE_DEVICE 1 /* in fl_copy_args: base comes from mem_alloc */
#define FL_ALLOC_DEVICE 0 /* fl_mem_alloc_args.space; others: FL_UNIMPLEMENTED */

typedef struct fl_mem_alloc_args {
  uint32_t struct_size;
  uint32_t kind; /* FL_KIND_MEM_ALLOC_ARGS */
  const fl_ext* next;
  uint64_t bytes;     /* 0: FL_INVALID_ARGUMENT */
  uint64_t alignment; /* power of two or 0; above max_align or no power of two: FL_INVALID_ARGUMENT */
  uint32_t space;     /* FL_ALLOC_DEVICE */
  uint32_t flags;     /* 0 */
} fl_mem_alloc_args;
#define FL_SIZE_V1_0_MEM_ALLOC_ARGS 40

typedef struct fl_copy_args {
  uint32_t struct_size;
  uint32_t kind; /* FL_KIND_COPY_ARGS */
  const fl_ext* next;
  uint32_t dst_space; /* FL_SPACE_* */
  uint32_t src_space;
  fl_device dst_device; /* NULL for FL_SPACE_HOST */
  fl_device src_device;
  uint64_t dst_base; /* value of mem_alloc, or a host pointer */
  uint64_t dst_offset; /* bytes */
  uint64_t src_base;
  uint64_t src_offset;
  uint64_t bytes; /* >= 1; host to host: FL_INVALID_ARGUMENT */
} fl_copy_args;
#define FL_SIZE_V1_0_COPY_ARGS 80

typedef struct fl_memory_api {
  uint32_t struct_size;
  uint32_t kind; /* FL_KIND_MEMORY_API */
  /* Raw and immediate, in no stream. base: non-zero multiple of max(alloc_align, alignment); live
   * ranges [base, base + bytes) of a device never overlap [FL-MEM-002, 003]. Contents undefined. */
  fl_status (*alloc)(fl_device device, const fl_mem_alloc_args* args, uint64_t* out_base, fl_error* err);
  /* base and bytes exactly as alloc had them. */
  fl_status (*free)(fl_device device, uint64_t base, uint64_t bytes, fl_error* err);
  fl_status (*info)(fl_device device, uint64_t* out_free, uint64_t* out_total, fl_error* err);
  /* In stream order. The stream belongs to the source's or the destination's device. Ordinary host
   * source: captured before return. Same base and intersecting ranges: FL_INVALID_ARGUMENT [FL-COPY-*]. */
  fl_status (*copy)(fl_stream stream, const fl_copy_args* args, fl_error* err);
  /* In stream order: writes the low pattern_bytes (1, 2, 4, 8) of pattern `count` times at
   * base + offset; offset is a multiple of pattern_bytes; count >= 1. */
  fl_status (*fill)(fl_stream stream, uint64_t base, uint64_t offset, uint64_t pattern, uint32_t pattern_bytes,
                    uint64_t count, fl_error* err);
} fl_memory_api;
#define FL_SIZE_V1_0_MEMORY_API 48

/* ---- Streams ------------------------------------------------------------------------------------------ */
typedef struct fl_stream_create_args {
  uint32_t struct_size;
  uint32_t kind; /* FL_KIND_STREAM_CREATE_ARGS */
  const fl_ext* next;
  int32_t priority; /* 0 default; outside [priority_greatest, priority_least]: FL_INVALID_ARGUMENT */
  uint32_t flags;   /* 0 */
} fl_stream_create_args;
#define FL_SIZE_V1_0_STREAM_CREATE_ARGS 24

/* Runs exactly once, in stream order, with no plugin lock held; status is the stream's. It makes no
 * call of this interface [FL-STREAM-010, FL-THREAD-004]. */
typedef void (*fl_host_fn)(void* arg, fl_status status);

typedef struct fl_stream_api {
  uint32_t struct_size;
  uint32_t kind; /* FL_KIND_STREAM_API */
  fl_status (*create)(fl_device device, const fl_stream_create_args* args, fl_stream* out, fl_error* err);
  /* Returns at once; pending work still completes [FL-THREAD-005]. */
  fl_status (*destroy)(fl_stream stream, fl_error* err);
  /* FL_OK when all submitted work has completed, FL_NOT_READY, or the stream's failure. */
  fl_status (*query)(fl_stream stream, fl_error* err);
  fl_status (*sync)(fl_stream stream, uint64_t timeout_ns, fl_error* err);
  fl_status (*host_task)(fl_stream stream, fl_host_fn fn, void* arg, fl_error* err);
  /* Later work of the stream starts after the generation of `event` current at this call has
   * completed; any device of this plugin; a never-recorded event is a no-op [FL-STREAM-004, 006]. */
  fl_status (*wait_event)(fl_stream stream, fl_event event, fl_error* err);
} fl_stream_api;
#define FL_SIZE_V1_0_STREAM_API 56

/* ---- Events ----------------------------------------------------------------------------------------------- */
#define FL_EVENT_TIMING 1
typedef struct fl_event_create_args {
  uint32_t struct_size;
  uint32_t kind; /* FL_KIND_EVENT_CREATE_ARGS */
  const fl_ext* next;
  uint32_t flags; /* FL_EVENT_TIMING or 0 */
  uint32_t pad;   /* 0 */
} fl_event_create_args;
#define FL_SIZE_V1_0_EVENT_CREATE_ARGS 24

typedef struct fl_event_api {
  uint32_t struct_size;
  uint32_t kind; /* FL_KIND_EVENT_API */
  fl_status (*create)(fl_device device, const fl_event_create_args* args, fl_event* out, fl_error* err);
  /* Returns at once; waits already submitted still hold. */
  fl_status (*destroy)(fl_event event, fl_error* err);
  /* Starts a new generation: complete once all work submitted to `stream` before has completed.
   * The stream is of the event's device, else FL_INVALID_ARGUMENT [FL-STREAM-003]. */
  fl_status (*record)(fl_event event, fl_stream stream, fl_error* err);
  fl_status (*query)(fl_event event, fl_error* err);
  fl_status (*sync)(fl_event event, uint64_t timeout_ns, fl_error* err);
  /* Nanoseconds between the execution of the two records. Not FL_EVENT_TIMING, never recorded or of
   * two devices: FL_FAILED_PRECONDITION; pending: FL_NOT_READY [FL-STREAM-012]. */
  fl_status (*elapsed)(fl_event start, fl_event end, int64_t* out_ns, fl_error* err);
} fl_event_api;
#define FL_SIZE_V1_0_EVENT_API 56

/* ---- Tensors and calls ---------------------------------------------------------------------------------------- */
#define FL_TENSOR_READONLY 1
typedef struct fl_tensor {
  uint32_t struct_size;
  uint32_t kind;         /* FL_KIND_TENSOR */
  uint64_t base;         /* value of mem_alloc; 0 in plan, and allowed where numel is 0 */
  uint64_t byte_offset;  /* from base to element 0; a multiple of the element size [FL-MEM-004] */
  uint64_t base_bytes;   /* size of the allocation: the bound of every access */
  const int64_t* sizes;  /* ndim values >= 0; may be NULL when ndim is 0 */
  const int64_t* strides; /* ndim values >= 0, in elements, 0 allowed */
  int64_t numel;
  uint32_t dtype; /* FL_DTYPE_* */
  uint32_t ndim;
  int32_t device; /* index */
  uint32_t flags; /* FL_TENSOR_READONLY or 0 */
} fl_tensor;
#define FL_SIZE_V1_0_TENSOR 72

#define FL_TAG_NONE 0 /* optional argument absent: distinct from any default */
#define FL_TAG_TENSOR 1
#define FL_TAG_TENSOR_LIST 2 /* count entries; NULL entry: absent */
#define FL_TAG_BOOL 3        /* value.i is 0 or 1 */
#define FL_TAG_INT 4
#define FL_TAG_UINT 5 /* only for values above INT64_MAX */
#define FL_TAG_FLOAT 6
#define FL_TAG_COMPLEX 7
#define FL_TAG_DTYPE 8 /* value.i is FL_DTYPE_* */
#define FL_TAG_INT_LIST 9
#define FL_TAG_FLOAT_LIST 10
#define FL_TAG_BOOL_LIST 11 /* one byte each, 0 or 1 */
#define FL_TAG_STRING 12    /* count bytes, NUL-terminated besides */
#define FL_TAG_RNG 13

typedef struct fl_complex {
  double re;
  double im;
} fl_complex;
typedef struct fl_rng {
  uint64_t seed;
  uint64_t offset;
} fl_rng;
typedef union fl_value {
  const fl_tensor* tensor;
  const fl_tensor* const* tensors;
  int64_t i;
  uint64_t u;
  double f;
  fl_complex c;
  const int64_t* ints;
  const double* floats;
  const uint8_t* bools;
  const char* string;
  fl_rng rng;
} fl_value;
/* Frozen for ever, 24 bytes. */
typedef struct fl_arg {
  uint16_t tag;   /* FL_TAG_* */
  uint16_t flags; /* 0 */
  uint32_t count; /* entries of a list, bytes of a string, else 0 */
  fl_value value;
} fl_arg;

typedef struct fl_call {
  uint32_t struct_size;
  uint32_t kind; /* FL_KIND_CALL */
  const fl_ext* next;
  const fl_arg* args;            /* n_args slots in the registry's order */
  const fl_tensor* const* outs;  /* n_outs preallocated outputs; never NULL entries */
  uint32_t n_args;
  uint32_t n_outs;
  uint64_t workspace_base; /* 0 when workspace_bytes is 0 */
  uint64_t workspace_offset;
  uint64_t workspace_bytes; /* >= fl_plan.workspace_bytes; garbage on entry */
  uint64_t plan_token;      /* as plan wrote it */
} fl_call;
#define FL_SIZE_V1_0_CALL 72

typedef struct fl_plan {
  uint32_t struct_size;
  uint32_t kind; /* FL_KIND_PLAN */
  uint64_t workspace_bytes; /* 0 for none */
  uint64_t workspace_align; /* power of two or 0 */
  uint64_t rng_increment;   /* generator counters consumed: the host advances offset by it */
  uint64_t token;           /* any integer; handed back to run */
} fl_plan;
#define FL_SIZE_V1_0_PLAN 40

/* ---- Kernel table [FL-KERNEL-001] --------------------------------------------------------------------------------- */
#define FL_LAYOUT_STRIDED 1 /* any strides, 0 included */
#define FL_LAYOUT_CONTIGUOUS 2
#define FL_LAYOUT_CHANNELS_LAST_2D 4
#define FL_LAYOUT_CHANNELS_LAST_3D 8
#define FL_LAYOUT_PERMUTED 16 /* dense, dimensions in any order */

#define FL_KERNEL_INPLACE_OK 1    /* an output may be exactly one of the inputs */
#define FL_KERNEL_TAKES_SCALAR 2  /* slots that the registry marks may carry a number */
#define FL_KERNEL_DETERMINISTIC 4 /* bitwise equal run to run */
#define FL_KERNEL_PLAN_PURE 8     /* plan depends on metadata only: the host may cache it */
#define FL_KERNEL_CAPTURABLE 16

#define FL_TIER_EXACT 0
#define FL_TIER_ACCURATE 1
#define FL_TIER_FAST 2

#define FL_ROW_FTZ_IN 1  /* subnormal inputs may be read as zero */
#define FL_ROW_FTZ_OUT 2 /* subnormal results may be written as zero */
#define FL_ROW_PHILOX_EXACT 4 /* bits of Philox4x32-10 as SPEC.md says */

#define FL_MAX_TYPE_VARIABLES 8
typedef struct fl_kernel_row {
  uint32_t struct_size;
  uint32_t kind;     /* FL_KIND_KERNEL_ROW */
  uint8_t dtypes[8]; /* one per type variable of the registry entry, in its order; unused ones 0 */
  uint32_t accumulator;      /* FL_DTYPE_*, FL_DTYPE_NONE where nothing is accumulated */
  uint32_t accumulator_bits; /* significant bits; 0: those of the accumulator's dtype */
  uint32_t path_length; /* additions on the longest path: 0: n - 1; 1: ceil(log2 n); b > 1: n/b + b */
  uint32_t flags;       /* FL_ROW_* */
} fl_kernel_row;
#define FL_SIZE_V1_0_KERNEL_ROW 32

typedef struct fl_kernel {
  uint32_t struct_size;
  uint32_t kind;       /* FL_KIND_KERNEL */
  const char* op;      /* ATen overload, "aten::add.Tensor" */
  const char* variant; /* (op, revision, variant) is unique in a table; [a-z0-9_]+ */
  uint32_t revision;
  uint32_t n_types; /* type variables per row: those of the registry entry */
  const fl_kernel_row* rows;
  uint32_t n_rows;
  uint32_t row_stride; /* bytes */
  uint32_t data_align; /* bytes each tensor's first element must be aligned to, 0: element size */
  uint32_t layouts;    /* FL_LAYOUT_* */
  uint32_t max_ndim;
  uint32_t flags;   /* FL_KERNEL_* */
  uint32_t tier;    /* FL_TIER_* */
  int32_t priority; /* higher first among variants of an admitted tier */
  const void* user; /* the plugin's own */
  /* Pure, thread-safe, no device work, no waiting. Tensors carry no addresses. FL_OK promises that
   * run will not say FL_UNIMPLEMENTED for this call [FL-KERNEL-007]. */
  fl_status (*plan)(const struct fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                    fl_error* err);
  /* Enqueues and returns, having read all host metadata. Writes every element of every output and
   * nothing else; allocates nothing [FL-KERNEL-006, 008]. */
  fl_status (*run)(const struct fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err);
} fl_kernel;
#define FL_SIZE_V1_0_KERNEL 96

typedef struct fl_kernel_table {
  uint32_t struct_size;
  uint32_t kind; /* FL_KIND_KERNEL_TABLE */
  uint32_t entry_stride; /* bytes from one entry to the next */
  uint32_t count;
  const fl_kernel* entries;
} fl_kernel_table;
#define FL_SIZE_V1_0_KERNEL_TABLE 24

typedef struct fl_kernel_api {
  uint32_t struct_size;
  uint32_t kind; /* FL_KIND_KERNEL_API */
  /* Constant per device for the life of the process. */
  fl_status (*kernels)(fl_device device, const fl_kernel_table** out, fl_error* err);
} fl_kernel_api;
#define FL_SIZE_V1_0_KERNEL_API 16

/* ---- Extension blocks ------------------------------------------------------------------------------------------------ */
typedef struct fl_extension {
  uint32_t struct_size;
  uint32_t kind; /* FL_KIND_EXT_PINNED, ... */
  uint32_t revision;
  uint32_t pad; /* 0 */
} fl_extension;
#define FL_SIZE_V1_0_EXTENSION 16

/* "fl.pinned", revision 1: host memory that copies neither capture nor wait for. It must stay valid and
 * unchanged (source) or unread (destination) until the copy has completed. */
typedef struct fl_pinned_api {
  uint32_t struct_size;
  uint32_t kind; /* FL_KIND_EXT_PINNED */
  uint32_t revision;
  uint32_t pad;
  fl_status (*alloc)(fl_device device, uint64_t bytes, void** out, fl_error* err); /* 64-byte aligned */
  fl_status (*free)(fl_device device, void* pointer, fl_error* err);
  fl_status (*register_range)(fl_device device, void* pointer, uint64_t bytes, fl_error* err);
  fl_status (*unregister_range)(fl_device device, void* pointer, fl_error* err);
  /* 1 when the byte at pointer lies in pinned memory of this plugin, else 0. */
  fl_status (*is_pinned)(const void* pointer, int32_t* out, fl_error* err);
} fl_pinned_api;
#define FL_SIZE_V1_0_PINNED_API 56

/* "fl.fault", revision 1: a test hook. */
typedef struct fl_fault_api {
  uint32_t struct_size;
  uint32_t kind; /* FL_KIND_EXT_FAULT */
  uint32_t revision;
  uint32_t pad;
  /* The next kernel, copy or fill submitted to the stream fails when it executes, with status
   * FL_ASYNC_FAILURE or FL_DEVICE_LOST (others: FL_INVALID_ARGUMENT). */
  fl_status (*fail_next)(fl_stream stream, fl_status status, fl_error* err);
  /* The next kernel, copy or fill submitted to the stream takes at least this much longer. */
  fl_status (*delay_next)(fl_stream stream, uint64_t nanoseconds, fl_error* err);
} fl_fault_api;
#define FL_SIZE_V1_0_FAULT_API 32

/* ---- Root ------------------------------------------------------------------------------------------------------------- */
typedef struct fl_plugin {
  uint32_t struct_size;
  uint32_t kind;           /* FL_KIND_PLUGIN */
  uint32_t minor;          /* FL_ABI_MINOR of the header it was built with; informational */
  uint32_t pad;            /* 0 */
  const char* name;        /* vendor name, [a-z0-9_]+ */
  const char* version;     /* the plugin's own version */
  const char* header_id;   /* FL_HEADER_ID */
  const fl_device_api* device;
  const fl_memory_api* memory;
  const fl_stream_api* stream;
  const fl_event_api* event;
  const fl_kernel_api* kernel;
  /* Extension "fl.<name>" or "<vendor>.<name>" of at least min_revision, else FL_UNIMPLEMENTED. */
  fl_status (*get_extension)(const char* name, uint32_t min_revision, const fl_extension** out, fl_error* err);
  /* Optional to call; afterwards no call is made. Exit without it is clean [FL-THREAD-007]. */
  fl_status (*shutdown)(fl_error* err);
} fl_plugin;
#define FL_SIZE_V1_0_PLUGIN 96

typedef fl_status (*fl_plugin_query_fn)(const fl_host* host, const fl_plugin** out, fl_error* err);
/* </cdef> */

#if defined(_WIN32)
#error "Torch-FL plugins are built for Linux on LP64 little-endian machines"
#endif

/* The one exported symbol. Pure: no device context, thread, file descriptor or environment change
 * [FL-THREAD-006]. The root table and all it points to are const and live until the process ends. */
__attribute__((visibility("default"))) fl_status fl_plugin_query_v1(const fl_host* host, const fl_plugin** out,
                                                                   fl_error* err);

#ifdef __cplusplus
}
#endif

#endif /* TORCH_FL_PLUGIN_H */
