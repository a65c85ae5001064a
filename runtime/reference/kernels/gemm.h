/*
 * gemm.h - the blocked, packed matrix product shared by mm, bmm, addmm and convolutions, forward and backward.
 *
 * C[i, j] = sum over k of A[i, k] B[j, k], for operands that only have to know how to put a piece of a line
 * or of a column into a buffer: a strided matrix of any strides, or an image read through a filter's window.
 * Finished tiles of C go to a sink that rounds and stores, adds a bias or scatters. The accumulator is the
 * lane of the operands' dtype (axis.h): f32 for halves and f32, f64 for f64, wrapping 64 bits for integers.
 * Each element is summed over k in order, in one accumulator per block of depth, and the blocks in order: at most
 * K - 1 additions that round on the longest path.
 */
#ifndef REF_KERNELS_GEMM_H
#define REF_KERNELS_GEMM_H

#include "axis.h"

/* Lines of A in a panel; a panel of B has two vectors of lines. */
#define GEMM_ROWS 6

/* Largest piece that is packed at once: lines of A, lines of B, steps of depth. */
#define GEMM_BLOCK_ROWS 96
#define GEMM_BLOCK_COLUMNS 256
#define GEMM_BLOCK_DEPTH 256

typedef struct ref_gemm_source ref_gemm_source;

/* Puts elements first ... first + count - 1 of the given line at depth `depth` into values. */
typedef void (*ref_gemm_gather)(const ref_gemm_source* source, int64_t first, int64_t count, int64_t depth,
                                void* values);

/* An operand of `lines.count` lines, `depths.count` deep. */
struct ref_gemm_source {
  uint32_t dtype;
  char* data; /* element (0, 0) */
  ref_axis lines;
  ref_axis depths;
  /* At most one of these; neither: element (line, depth) lies at the sum of the two axes' offsets. */
  ref_gemm_gather gather;
  ref_gemm_gather gather_along; /* the same with line and depth exchanged: a piece of one line at a time */
  const void* user;             /* the gather's own */
};

typedef struct ref_gemm_sink ref_gemm_sink;

/* Takes rows x columns finished sums of the lane, those of a row next to each other, rows `ld` values apart. */
struct ref_gemm_sink {
  void (*take)(const ref_gemm_sink* sink, const void* tile, int64_t ld, int64_t row, int64_t rows, int64_t column,
               int64_t columns);
  const void* user; /* the sink's own */
};

/* Bytes of 64-byte aligned scratch that a product of this size takes from its caller; 0 for a small one. */
int64_t ref_gemm_workspace(ref_lane lane, int64_t rows, int64_t columns, int64_t depth);

/* A sink that stores alpha * sum + beta * addend[row, column], rounded to the output's dtype. */
typedef struct {
  uint32_t dtype;
  char* out;
  ref_axis rows; /* of the output */
  ref_axis columns;
  char* addend; /* of the output's dtype; NULL: none, beta is not looked at and nothing is read */
  ref_axis addend_rows;
  ref_axis addend_columns;
  ref_value alpha; /* f64 for floats, i64 for integers */
  ref_value beta;
} ref_gemm_store;

/* The sink that stores as `store`, which outlives it, says. */
ref_gemm_sink ref_gemm_store_sink(const ref_gemm_store* store);

/* Factor one, for alpha and beta. */
ref_value ref_gemm_one(uint32_t dtype);

/* a->dtype and b->dtype share a lane. With depth 0 the sink gets zeros; with no rows or columns, nothing. */
void ref_gemm(const ref_gemm_source* a, const ref_gemm_source* b, const ref_gemm_sink* sink, char* workspace);

#endif /* REF_KERNELS_GEMM_H */
