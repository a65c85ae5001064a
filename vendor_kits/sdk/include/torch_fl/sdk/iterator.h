/*
 * torch_fl/sdk/iterator.h - walks N operands of one shape with any strides, 0 (broadcast) included.
 *
 * Build:  fl_iter iter;
 *         fl_iter_init(&iter, ndim, sizes);                           sizes in elements, ndim <= FL_ITER_MAX_NDIM
 *         fl_iter_operand(&iter, data, strides, element_bytes);        once per operand; strides in elements
 *         fl_iter_sort(&iter);                                         optional: fastest dimension of operand 0 last
 *         fl_iter_coalesce(&iter);                                     optional: drop and merge dimensions
 *         fl_iter_run(&iter, loop, context);
 *
 * The loop gets one pointer per operand, one stride per operand (bytes) and the number of elements of the innermost
 * dimension; it is not called for an empty shape. An iterator is plain data: it may be copied, sent to another
 * thread, and run any number of times. Without fl_iter_sort the elements come in row-major order.
 */
#ifndef TORCH_FL_SDK_ITERATOR_H
#define TORCH_FL_SDK_ITERATOR_H

#include <stddef.h>
#include <stdint.h>

#define FL_ITER_MAX_NDIM 8
#define FL_ITER_MAX_OPERANDS 6

typedef struct fl_iter {
  uint32_t ndim;
  uint32_t n_operands;
  int64_t sizes[FL_ITER_MAX_NDIM];
  char* data[FL_ITER_MAX_OPERANDS];
  int64_t strides[FL_ITER_MAX_OPERANDS][FL_ITER_MAX_NDIM]; /* bytes */
} fl_iter;

typedef void (*fl_iter_loop)(char* const* data, const int64_t* strides, int64_t count, const void* context);

static inline void fl_iter_init(fl_iter* iter, uint32_t ndim, const int64_t* sizes) {
  iter->ndim = ndim;
  iter->n_operands = 0;
  for (uint32_t d = 0; d < ndim; d++) iter->sizes[d] = sizes[d];
}

/* Appends one operand; inputs are passed with their const cast away, the loop knows which ones it reads. */
static inline void fl_iter_operand(fl_iter* iter, char* data, const int64_t* strides, uint32_t element_bytes) {
  uint32_t n = iter->n_operands;
  iter->data[n] = data;
  for (uint32_t d = 0; d < iter->ndim; d++) iter->strides[n][d] = strides[d] * (int64_t)element_bytes;
  iter->n_operands = n + 1;
}

static inline int64_t fl_iter_numel(const fl_iter* iter) {
  int64_t numel = 1;
  for (uint32_t d = 0; d < iter->ndim; d++) numel *= iter->sizes[d];
  return numel;
}

static inline void fl_iter_swap(fl_iter* iter, uint32_t a, uint32_t b) {
  int64_t size = iter->sizes[a];
  iter->sizes[a] = iter->sizes[b];
  iter->sizes[b] = size;
  for (uint32_t n = 0; n < iter->n_operands; n++) {
    int64_t stride = iter->strides[n][a];
    iter->strides[n][a] = iter->strides[n][b];
    iter->strides[n][b] = stride;
  }
}

/* 1 when dimension a has to lie outside dimension b: larger stride in the first operand that tells them apart. */
static inline int fl_iter_outside(const fl_iter* iter, uint32_t a, uint32_t b) {
  for (uint32_t n = 0; n < iter->n_operands; n++) {
    int64_t stride_a = iter->strides[n][a];
    int64_t stride_b = iter->strides[n][b];
    if (stride_a != stride_b && stride_a != 0 && stride_b != 0) return stride_a > stride_b;
  }
  return 0;
}

/* Orders dimensions so that memory is walked as it lies. Insertion sort keeps equal ones in place. */
static inline void fl_iter_sort(fl_iter* iter) {
  for (uint32_t d = 1; d < iter->ndim; d++) {
    for (uint32_t k = d; k > 0 && fl_iter_outside(iter, k, k - 1); k--) fl_iter_swap(iter, k, k - 1);
  }
}

/* 1 when dimension `outer` continues `inner` without a gap in every operand. */
static inline int fl_iter_mergeable(const fl_iter* iter, uint32_t outer, uint32_t inner) {
  for (uint32_t n = 0; n < iter->n_operands; n++) {
    if (iter->strides[n][outer] != iter->strides[n][inner] * iter->sizes[inner]) return 0;
  }
  return 1;
}

/* Drops dimensions of size 1 and merges neighbours; the order of elements stays. */
static inline void fl_iter_coalesce(fl_iter* iter) {
  uint32_t kept = 0;
  for (uint32_t d = 0; d < iter->ndim; d++) {
    if (iter->sizes[d] == 1) continue;
    int merge = kept > 0 && fl_iter_mergeable(iter, kept - 1, d);
    uint32_t target = merge ? kept - 1 : kept;
    iter->sizes[target] = merge ? iter->sizes[target] * iter->sizes[d] : iter->sizes[d];
    for (uint32_t n = 0; n < iter->n_operands; n++) iter->strides[n][target] = iter->strides[n][d];
    kept = target + 1;
  }
  iter->ndim = kept;
}

static inline void fl_iter_run(const fl_iter* iter, fl_iter_loop loop, const void* context) {
  char* data[FL_ITER_MAX_OPERANDS] = {NULL};
  int64_t inner_strides[FL_ITER_MAX_OPERANDS] = {0};
  int64_t position[FL_ITER_MAX_NDIM] = {0};
  uint32_t outer = iter->ndim > 0 ? iter->ndim - 1 : 0;
  int64_t count = iter->ndim > 0 ? iter->sizes[outer] : 1;
  if (fl_iter_numel(iter) == 0) return;
  for (uint32_t n = 0; n < iter->n_operands; n++) {
    data[n] = iter->data[n];
    inner_strides[n] = iter->ndim > 0 ? iter->strides[n][outer] : 0;
  }
  for (;;) {
    loop(data, inner_strides, count, context);
    uint32_t d = outer;
    while (d > 0) {
      d--;
      position[d]++;
      for (uint32_t n = 0; n < iter->n_operands; n++) data[n] += iter->strides[n][d];
      if (position[d] < iter->sizes[d]) break;
      for (uint32_t n = 0; n < iter->n_operands; n++) data[n] -= iter->strides[n][d] * iter->sizes[d];
      position[d] = 0;
      if (d == 0) return;
    }
    if (outer == 0) return;
  }
}

#endif /* TORCH_FL_SDK_ITERATOR_H */
