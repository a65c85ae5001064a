/* gemm.c - blocking, packing and the order of the loops; the arithmetic is in gemm_tile.inc. */
#include "gemm.h"

#include <string.h>

#define VECTOR_BYTES 32
#define GEMM_VECTORS(ACC, name)                                                                      \
  typedef ACC gemm_vec_##name __attribute__((vector_size(VECTOR_BYTES), may_alias));                 \
  typedef ACC gemm_any_##name __attribute__((vector_size(VECTOR_BYTES), may_alias, aligned(sizeof(ACC)))); \
  typedef ACC gemm_quad_##name __attribute__((vector_size(4 * sizeof(ACC)), may_alias, aligned(sizeof(ACC))))
GEMM_VECTORS(float, f32);
GEMM_VECTORS(double, f64);
GEMM_VECTORS(uint64_t, i64);
typedef int32_t gemm_mask_32 __attribute__((vector_size(16)));
typedef int64_t gemm_mask_64 __attribute__((vector_size(32)));

#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (MASK){__VA_ARGS__})
#endif

/* Of the accumulator that is defined where it is used. */
#define LANES (VECTOR_BYTES / (int64_t)sizeof(ACC))

#define ACC float
#define MASK gemm_mask_32
#define VEC gemm_vec_f32
#define UNALIGNED gemm_any_f32
#define QUAD gemm_quad_f32
#define NAME(x) x##_f32
#include "gemm_tile.inc"
#undef ACC
#undef MASK
#undef VEC
#undef UNALIGNED
#undef QUAD
#undef NAME

#define ACC double
#define MASK gemm_mask_64
#define VEC gemm_vec_f64
#define UNALIGNED gemm_any_f64
#define QUAD gemm_quad_f64
#define NAME(x) x##_f64
#include "gemm_tile.inc"
#undef ACC
#undef MASK
#undef VEC
#undef UNALIGNED
#undef QUAD
#undef NAME

/* Unsigned, so that sums and products wrap. */
#define ACC uint64_t
#define MASK gemm_mask_64
#define VEC gemm_vec_i64
#define UNALIGNED gemm_any_i64
#define QUAD gemm_quad_i64
#define NAME(x) x##_i64
#include "gemm_tile.inc"
#undef ACC
#undef MASK
#undef VEC
#undef UNALIGNED
#undef QUAD
#undef NAME

typedef struct {
  void (*micro)(const void* a, const void* b, int64_t depth, void* c, int64_t ldc);
  void (*interleave)(const void* lines, int64_t ld, int64_t count, int64_t depth, int64_t width, void* panel);
  void (*place)(const void* values, int64_t count, int64_t width, int64_t step, void* panels);
} gemm_arithmetic;

static const gemm_arithmetic arithmetics[] = {
    [REF_LANE_F32] = {gemm_micro_f32, gemm_interleave_f32, gemm_place_f32},
    [REF_LANE_F64] = {gemm_micro_f64, gemm_interleave_f64, gemm_place_f64},
    [REF_LANE_I64] = {gemm_micro_i64, gemm_interleave_i64, gemm_place_i64},
};

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t round_up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/* The most bytes that the lines of one panel have at each depth: those of B in any lane, or of A in the widest. */
#define GEMM_PANEL_BYTES 64

/* From one line of a panel to the next before they are turned: no power of two, whose lines would share cache sets. */
#define LINE_VALUES (GEMM_BLOCK_DEPTH + 16)

/* Lines of B in a panel: two vectors. */
static int64_t panel_columns(ref_lane lane) {
  return 2 * VECTOR_BYTES / ref_lane_bytes(lane);
}

/* Scratch of so many bytes lies on the stack: to ask the host for it would cost more than a small product itself. */
#define SMALL_SCRATCH 1024

/* An A of no more bytes is packed once for the whole product: a filter, for all the images that it sees. */
#define WHOLE_A 262144

/* Scratch of one product: packed A, packed B, the tile of C, each a multiple of 64 bytes. */
typedef struct {
  int whole_a;
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
  const int64_t all_rows = round_up(rows, GEMM_ROWS);
  scratch.whole_a = columns > GEMM_BLOCK_COLUMNS && rows > 0 && depth <= WHOLE_A / value_bytes / all_rows;
  scratch.a_bytes = round_up((scratch.whole_a ? all_rows * depth : block_rows * block_depth) * value_bytes, 64);
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

/* Whether the values of a line lie side by side, in the type that they are calculated in (no dtype is as wide as the lane
 * of another kind), and the lines evenly apart. */
static int is_ready(const ref_gemm_source* source) {
  const int same = (int64_t)fl_dtype_size(source->dtype) == ref_lane_bytes(ref_lane_of(source->dtype));
  return same && source->gather_along == NULL && source->lines.ndim == 1 && ref_axis_step(&source->depths) == 1;
}

/* Packs a panel whose lines are ready, a run at a time. */
static void pack_ready(const gemm_piece* piece, int64_t first, int64_t count, char* panel) {
  const ref_gemm_source* source = piece->source;
  const char* line = ref_element(source->dtype, source->data, &source->lines, first);
  for (int64_t k = 0; k < piece->depths;) {
    const int64_t run = smaller(ref_axis_run(&source->depths, piece->depth + k), piece->depths - k);
    const char* values = line + ref_axis_offset(&source->depths, piece->depth + k) * piece->value_bytes;
    char* to = panel + k * piece->width * piece->value_bytes;
    piece->arithmetic->interleave(values, source->lines.strides[0], count, run, piece->width, to);
    k += run;
  }
}

/* Packs a panel whose lines lie along memory: all of its lines, then turned into the panel. */
static void pack_along(const gemm_piece* piece, int64_t first, int64_t count, char* panel) {
  const ref_gemm_source* source = piece->source;
  if (is_ready(source)) {
    pack_ready(piece, first, count, panel);
    return;
  }
  double lines[GEMM_PANEL_BYTES / 8 * LINE_VALUES];
  for (int64_t i = 0; i < count; i++) {
    char* values = (char*)lines + i * LINE_VALUES * piece->value_bytes;
    if (source->gather_along != NULL) {
      source->gather_along(source, piece->depth, piece->depths, first + i, values);
    } else {
      const char* line = ref_element(source->dtype, source->data, &source->lines, first + i);
      ref_load(source->dtype, line, &source->depths, piece->depth, piece->depths, values);
    }
  }
  piece->arithmetic->interleave(lines, LINE_VALUES, count, piece->depths, piece->width, panel);
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
  char* to = piece->panels + depth * piece->width * piece->value_bytes;
  piece->arithmetic->place(values, piece->lines, piece->width, piece->width * piece->depths, to);
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

/* Packs the depths of A from `k` on; `column` is the first column that they are for. Blocks of an A that stays whole
 * lie one after the other, and are packed on the way through the first columns. */
static void pack_left(gemm_piece* left, const gemm_scratch* scratch, char* panels, int64_t k, int64_t column) {
  left->depth = k;
  left->depths = smaller(GEMM_BLOCK_DEPTH, left->source->depths.count - k);
  left->panels = panels;
  if (scratch->whole_a) {
    const int64_t before = left->line * left->source->depths.count + round_up(left->lines, GEMM_ROWS) * k;
    left->panels = panels + before * left->value_bytes;
  }
  if (!scratch->whole_a || column == 0) {
    pack(left);
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
        pack_left(&left, &scratch, workspace, k, column);
        right.depth = k;
        right.depths = left.depths;
        pack(&right);
        multiply(&left, &right, tile, scratch.ld);
      }
      sink->take(sink, tile, scratch.ld, row, left.lines, column, right.lines);
    }
  }
}
