/*
 * nll_loss.h - what nll_loss_forward and nll_loss_backward share: the check of their shapes, and which targets count.
 */
#ifndef REF_KERNELS_NLL_LOSS_H
#define REF_KERNELS_NLL_LOSS_H

#include "axis.h"
#include "kernel.h"

/* Values of the argument `reduction`. */
#define NLL_NONE 0
#define NLL_MEAN 1
#define NLL_SUM 2

/* self, target and weight of a call, seen as a batch: a call without a batch is one of one element. */
typedef struct {
  ref_view target;
  ref_view weight;
  int has_weight;
  int64_t reduction;
  int64_t ignore_index;
  int64_t batch;
  int64_t classes;
} nll_batch;

/* The arguments from `self`, slot `first`, on: self, target, weight, reduction, ignore_index. Ranks and sizes that do
 * not fit each other, and an unknown reduction: FL_INVALID_ARGUMENT. */
fl_status ref_nll_check(const fl_kernel* kernel, const fl_call* call, uint32_t first, fl_error* err);

/* `tensor` has the shape of the loss: [N] for reduction none with a batch, else no dimension. */
fl_status ref_nll_check_loss(const fl_kernel* kernel, const fl_call* call, uint32_t first, const fl_tensor* tensor,
                             fl_error* err);

/* After ref_nll_check. */
fl_status ref_nll_batch(fl_stream stream, const fl_call* call, uint32_t first, nll_batch* batch, fl_error* err);

/* Targets `from` ... of the batch. Those that do not count, ignored ones and what is no class [FL-KERNEL-013], are -1. */
void ref_nll_targets(const nll_batch* batch, int64_t from, int64_t count, int64_t* targets);

/* Weights of these targets as values of the lane: 1 where there is none, 0 where a target is -1. */
void ref_nll_weights(const nll_batch* batch, ref_lane lane, const int64_t* targets, int64_t count, void* weights);

#endif /* REF_KERNELS_NLL_LOSS_H */
