/* gemm.c - blocking, packing and the order of the loops; the arithmetic is in gemm_tile.inc. */
#include "gemm.h"

#include <string.h>

#define VECTOR_BYTES 32
typedef float gemm_vec_f32 __attribute__((vector_size(VECTOR_BYTES), may_alias));
typedef double gemm_vec_f64 __attribute__((vector_size(VECTOR_BYTES), may_alias));
typedef uint64_t gemm_vec_i64 __attribute__((vector_size(VECTOR_BYTES), may_alias));

#define ACC float
#define VEC gemm_vec_f32
#define NAME(x) x##_f32
#include "gemm_tile.inc"
#undef ACC
#undef VEC
#undef NAME

#define ACC double
#define VEC gemm_vec_f64
#define NAME(x) x##_f64
#include "gemm_tile.inc"
#undef ACC
#undef VEC
#undef NAME

/* Unsigned, so that sums and products wrap. */
#define ACC uint64_t
#define VEC gemm_vec_i64
#define NAME(x) x##_i64
#include "gemm_tile.inc"
#undef ACC
#undef VEC
#undef NAME

typedef struct {
  void (*micro)(const void* a, const void* b, int64_t depth, void* c, int64_t ldc);
  void (*spread)(const void* values, int64_t count, int64_t step, void* panel);
  void (*place)(const void* values, int64_t count, int64_t width, void* panel);
} gemm_arithmetic;

static const gemm_arithmetic arithmetics[] = {
    [REF_LANE_F32] = {gemm_micro_f32, gemm_spread_f32, gemm_place_f32},
    [REF_LANE_F64] = {gemm_micro_f64, gemm_spread_f64, gemm_place_f64},
    [REF_LANE_I64] = {gemm_micro_i64, gemm_spread_i64, gemm_place_i64},
};

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t round_up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/* Lines of B in a panel: two vectors. */
static int64_t panel_columns(ref_lane lane) {
  return 2 * VECTOR_BYTES / ref_lane_bytes(lane);
}

/* Scratch of so many bytes lies on the stack: to ask the host for it would cost more than a small product itself. */
#define SMALL_SCRATCH 1024

/* Scratch of one product: packed A, packed B, the tile of C, each a multiple of 64 bytes. */
typedef struct {
  int64_t a_bytes;
  int64_t b_bytes;
  int64_t c_bytes;
  int64_t ld; /* values from one row of the tile to the next */
} gemm_scratch;

static gemm_scratch scratch_of(ref_lane lane, int64_t rows, int64_t columns, int64_t depth) {
  const int64_t value_bytes = ref_lane_bytes(lane);
  const int64_t block_rows = round_up(smaller(rows, GEMM_BLOCK_ROWS), GEMM_ROWS);
  const int64_t block_columns = round_up(smaller(columns, GEMM_BLOCK_COLUMNS), panel_columns(lane));
  const int64_t block_depth = smaller(depth, GEMM_BLOCK_DEPTH);
  gemm_scratch scratch;
  scratch.ld = block_columns;
  scratch.a_bytes = round_up(block_rows * block_depth * value_bytes, 64);
  scratch.b_bytes = round_up(block_columns * block_depth * value_bytes, 64);
  scratch.c_bytes = round_up(block_rows * block_columns * value_bytes, 64);
  return scratch;
}

static int64_t scratch_bytes(const gemm_scratch* scratch) {
  return scratch->a_bytes + scratch->b_bytes + scratch->c_bytes;
}

int64_t ref_gemm_workspace(ref_lane lane, int64_t rows, int64_t columns, int64_t depth) {
  const gemm_scratch scratch = scratch_of(lane, rows, columns, depth);
  const int64_t bytes = scratch_bytes(&scratch);
  return bytes <= SMALL_SCRATCH ? 0 : bytes;
}

/* One piece of an operand on its way into panels of `width` lines: [panel][depth][width]. */
typedef struct {
  const ref_gemm_source* source;
  const gemm_arithmetic* arithmetic;
  int64_t value_bytes;
  int64_t width;
  int64_t line; /* first line and depth of the piece */
  int64_t lines;
  int64_t depth;
  int64_t depths;
  char* panels;
} gemm_piece;

/* Packs a panel whose lines lie along memory: a line at a time, spread over the panel. */
static void pack_along(const gemm_piece* piece, int64_t first, int64_t count, char* panel) {
  const ref_gemm_source* source = piece->source;
  double values[GEMM_BLOCK_DEPTH];
  if (count < piece->width) {
    memset(panel, 0, (size_t)(piece->depths * piece->width * piece->value_bytes));
  }
  for (int64_t i = 0; i < count; i++) {
    if (source->gather_along != NULL) {
      source->gather_along(source, piece->depth, piece->depths, first + i, values);
    } else {
      const char* line = ref_element(source->dtype, source->data, &source->lines, first + i);
      ref_load(source->dtype, line, &source->depths, piece->depth, piece->depths, values);
    }
    piece->arithmetic->spread(values, piece->depths, piece->width, panel + i * piece->value_bytes);
  }
}

/* Packs one depth of all panels: what a gather, or a matrix whose columns lie along memory, gives at once. */
static void pack_across(const gemm_piece* piece, int64_t depth) {
  const ref_gemm_source* source = piece->source;
  double values[GEMM_BLOCK_COLUMNS];
  if (source->gather != NULL) {
    source->gather(source, piece->line, piece->lines, piece->depth + depth, values);
  } else {
    const char* column = ref_element(source->dtype, source->data, &source->depths, piece->depth + depth);
    ref_load(source->dtype, column, &source->lines, piece->line, piece->lines, values);
  }
  const char* from = (const char*)values;
  for (int64_t first = 0; first < piece->lines; first += piece->width) {
    const int64_t count = smaller(piece->width, piece->lines - first);
    char* to = piece->panels + (first * piece->depths + depth * piece->width) * piece->value_bytes;
    piece->arithmetic->place(from + first * piece->value_bytes, count, piece->width, to);
  }
}

static void pack(const gemm_piece* piece) {
  const ref_gemm_source* source = piece->source;
  const int near = ref_axis_step(&source->depths) <= ref_axis_step(&source->lines);
  if (source->gather_along != NULL || (source->gather == NULL && near)) {
    for (int64_t first = 0; first < piece->lines; first += piece->width) {
      const int64_t count = smaller(piece->width, piece->lines - first);
      pack_along(piece, piece->line + first, count, piece->panels + first * piece->depths * piece->value_bytes);
    }
    return;
  }
  for (int64_t depth = 0; depth < piece->depths; depth++) {
    pack_across(piece, depth);
  }
}

/* Adds the product of two packed pieces to the tile. */
static void multiply(const gemm_piece* a, const gemm_piece* b, char* tile, int64_t ld) {
  for (int64_t column = 0; column < b->lines; column += b->width) {
    const char* b_panel = b->panels + column * b->depths * b->value_bytes;
    for (int64_t row = 0; row < a->lines; row += a->width) {
      const char* a_panel = a->panels + row * a->depths * a->value_bytes;
      char* c = tile + (row * ld + column) * a->value_bytes;
      a->arithmetic->micro(a_panel, b_panel, a->depths, c, ld);
    }
  }
}

void ref_gemm(const ref_gemm_source* a, const ref_gemm_source* b, const ref_gemm_sink* sink, char* workspace) {
  const ref_lane lane = ref_lane_of(a->dtype);
  const int64_t rows = a->lines.count;
  const int64_t columns = b->lines.count;
  const int64_t depth = a->depths.count;
  const gemm_scratch scratch = scratch_of(lane, rows, columns, depth);
  const int64_t value_bytes = ref_lane_bytes(lane);
  _Alignas(64) char small[SMALL_SCRATCH];
  if (scratch_bytes(&scratch) <= SMALL_SCRATCH) {
    workspace = small;
  }
  gemm_piece left = {a, &arithmetics[lane], value_bytes, GEMM_ROWS, 0, 0, 0, 0, workspace};
  gemm_piece right = {b, &arithmetics[lane], value_bytes, panel_columns(lane), 0, 0, 0, 0, workspace + scratch.a_bytes};
  char* tile = workspace + scratch.a_bytes + scratch.b_bytes;
  for (int64_t column = 0; column < columns; column += GEMM_BLOCK_COLUMNS) {
    right.line = column;
    right.lines = smaller(GEMM_BLOCK_COLUMNS, columns - column);
    for (int64_t row = 0; row < rows; row += GEMM_BLOCK_ROWS) {
      left.line = row;
      left.lines = smaller(GEMM_BLOCK_ROWS, rows - row);
      memset(tile, 0, (size_t)scratch.c_bytes);
      for (int64_t k = 0; k < depth; k += GEMM_BLOCK_DEPTH) {
        left.depth = k;
        left.depths = smaller(GEMM_BLOCK_DEPTH, depth - k);
        right.depth = k;
        right.depths = left.depths;
        pack(&left);
        pack(&right);
        multiply(&left, &right, tile, scratch.ld);
      }
      sink->take(sink, tile, scratch.ld, row, left.lines, column, right.lines);
    }
  }
}
