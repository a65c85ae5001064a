/*
 * reference.h - what the kernels of the reference vendor see of its core.
 *
 * A kernel's run checks the call (torch_fl/sdk/args.h), turns tensors into views with ref_view_of, and hands a plain
 * payload to ref_submit; the payload is copied, so that nothing of the host's is read after run has returned
 * [FL-THREAD-008]. The work function runs in stream order on the stream's worker thread, or before ref_submit
 * returns where the device is INLINE.
 */
#ifndef FL_REFERENCE_H
#define FL_REFERENCE_H

#include "torch_fl/plugin.h"
#include "torch_fl/sdk/args.h"
#include "torch_fl/sdk/dtype.h"
#include "torch_fl/sdk/error.h"

#define REF_MAX_NDIM 8

/* Gets the copy of the payload, aligned to 16 bytes. It cannot fail: whatever can be wrong is found before. */
typedef void (*ref_work_fn)(const void* payload);

/* Enqueues fn with a copy of `bytes` bytes at payload (any size). FL_OUT_OF_RESOURCES where there is no room for it;
 * the failure of the stream where it is poisoned; on an INLINE device also the failure of this very work. */
fl_status ref_submit(fl_stream stream, ref_work_fn fn, const void* payload, uint64_t bytes, fl_error* err);

/* A tensor as the worker sees it: data points at element 0 in the worker-side mapping, NULL where numel is 0. */
typedef struct ref_view {
  char* data;
  int64_t sizes[REF_MAX_NDIM];
  int64_t strides[REF_MAX_NDIM]; /* elements */
  int64_t numel;
  uint32_t ndim;
  uint32_t dtype;
} ref_view;

/* Checks struct, metadata (fl_check_tensor), device and that every element lies inside the live allocation, then
 * translates. FL_INVALID_ARGUMENT otherwise; rank above REF_MAX_NDIM or an unknown dtype: FL_UNIMPLEMENTED. */
fl_status ref_view_of(fl_stream stream, const fl_tensor* tensor, ref_view* out, fl_error* err);

/* The call's workspace of at least `bytes` bytes in the worker-side mapping, NULL where bytes is 0. Smaller, or
 * outside a live allocation: FL_INVALID_ARGUMENT. Garbage on entry. */
fl_status ref_workspace(fl_stream stream, const fl_call* call, uint64_t bytes, char** out, fl_error* err);

/* Hot loops: one clone per instruction set, chosen when the library is loaded, so that one portable binary is fast.
 * -std=c11 keeps multiply and add apart, so every clone gives the same bits. Sanitizers start after the choice is
 * made and cannot follow it. */
#if !defined(__x86_64__) || defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(__clang__)
#define REF_HOT
#elif __GNUC__ >= 12
#define REF_HOT __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define REF_HOT __attribute__((target_clones("default", "avx2", "avx512f")))
#endif

/* Kernel lists: each file kernels/<name>.c defines these two. */
#define REF_KERNELS(name)                      \
  extern const fl_kernel ref_kernels_##name[]; \
  extern const uint32_t ref_kernels_##name##_count

REF_KERNELS(pointwise_unary);
REF_KERNELS(pointwise_binary);
REF_KERNELS(pointwise_compare);
REF_KERNELS(pointwise_training);
REF_KERNELS(copy_cast);
REF_KERNELS(movement);
REF_KERNELS(index);
REF_KERNELS(scatter);
REF_KERNELS(random);
REF_KERNELS(dropout);
REF_KERNELS(reduction);
REF_KERNELS(contraction);
REF_KERNELS(convolution);
REF_KERNELS(convolution_backward);
REF_KERNELS(softmax);
REF_KERNELS(layer_norm);
REF_KERNELS(average_pool);
REF_KERNELS(max_pool);
REF_KERNELS(max_pool_backward);
REF_KERNELS(softmax_backward);
REF_KERNELS(nll_loss);
REF_KERNELS(nll_loss_backward);
REF_KERNELS(batch_norm);
REF_KERNELS(batch_norm_backward);

#endif /* FL_REFERENCE_H */
