/* sdk_check.c - the SDK's number conversions against their definition, and its iterator against plain loops. */
#include <math.h>

#include "harness.h"
#include "torch_fl/sdk/dtype.h"
#include "torch_fl/sdk/iterator.h"

/* Value of the magnitude bits of a format with `mantissa` stored bits and smallest exponent emin, inf as 2^(emax+1). */
static double magnitude(uint32_t bits, int mantissa, int emin) {
  uint32_t exponent = bits >> mantissa;
  uint32_t fraction = bits & ((1u << mantissa) - 1u);
  if (exponent == 0) return ldexp((double)fraction, emin - mantissa);
  return ldexp((double)(fraction + (1u << mantissa)), emin - mantissa + (int)exponent - 1);
}

/* Half to even by definition: among the bit patterns the nearest value, on a tie the even pattern. `inf` is the first
 * pattern that is no finite number. */
static uint32_t nearest(double value, int mantissa, int emin, uint32_t inf) {
  uint32_t low = 0;
  uint32_t high = inf;
  while (low < high) { /* the largest pattern whose value is <= value */
    uint32_t middle = (low + high + 1) / 2;
    if (magnitude(middle, mantissa, emin) <= value) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  if (low == inf) return inf;
  long double below = (long double)value - magnitude(low, mantissa, emin);
  long double above = (long double)magnitude(low + 1, mantissa, emin) - value;
  if (below < above) return low;
  if (above < below) return low + 1;
  return low & 1u ? low + 1 : low;
}

static uint64_t state = 0x9E3779B97F4A7C15ull;

static uint64_t next_random(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

static void one_double(double value) {
  double size = fabs(value);
  uint32_t sign = signbit(value) ? 0x8000u : 0u;
  CHECK(fl_f64_to_f16(value) == (sign | nearest(size, 10, -14, 0x7C00)));
  CHECK(fl_f64_to_bf16(value) == (sign | nearest(size, 7, -126, 0x7F80)));
  float single = (float)value;
  CHECK(fl_f32_to_f16(single) == (sign | nearest(fabs((double)single), 10, -14, 0x7C00)));
  CHECK(fl_f32_to_bf16(single) == (sign | nearest(fabs((double)single), 7, -126, 0x7F80)));
}

static void halves_round_once_to_even(void) {
  for (uint32_t bits = 0; bits < 0x7C00; bits++) {
    double value = magnitude(bits, 10, -14);
    double middle = (value + magnitude(bits + 1, 10, -14)) / 2;
    CHECK(fl_f16_to_f64((uint16_t)bits) == value && fl_f16_to_f32((uint16_t)(bits | 0x8000u)) == -(float)value);
    one_double(value);
    one_double(middle);
    one_double(-nextafter(middle, 0.0));
    one_double(nextafter(middle, HUGE_VAL));
  }
  for (uint32_t bits = 0; bits < 0x7F80; bits += 7) {
    double value = magnitude(bits, 7, -126);
    double middle = (value + magnitude(bits + 1, 7, -126)) / 2;
    CHECK(fl_bf16_to_f64((uint16_t)bits) == value);
    one_double(middle);
    one_double(nextafter(middle, 0.0));
    one_double(-nextafter(middle, HUGE_VAL));
  }
  for (int i = 0; i < 200000; i++) {
    double value = fl_f64_from_bits(next_random());
    if (value == value) one_double(value);
    one_double(ldexp((double)(int64_t)next_random(), (int)(next_random() % 60) - 93));
  }
  one_double(0.0);
  one_double(-0.0);
  one_double(INFINITY);
  CHECK((fl_f64_to_f16(NAN) & 0x7FFFu) > 0x7C00u && (fl_f64_to_bf16(NAN) & 0x7FFFu) > 0x7F80u);
  CHECK((fl_f32_to_f16(fl_f32_from_bits(0x7F800001u)) & 0x7FFFu) > 0x7C00u);
  CHECK((fl_f32_to_bf16(fl_f32_from_bits(0xFF800001u)) & 0x7FFFu) > 0x7F80u);
  CHECK(isnan(fl_f16_to_f32(0x7C01)) && isinf(fl_f16_to_f32(0xFC00)) && fl_f16_to_f32(0xFC00) < 0);
}

typedef struct {
  int64_t* seen; /* element offsets in the order visited: two operands */
  size_t n;
  char* origin[2];
} trace;

static void note(char* const* data, const int64_t* strides, int64_t count, const void* context) {
  trace* noted = (trace*)(uintptr_t)context;
  for (int64_t i = 0; i < count; i++) {
    for (int n = 0; n < 2; n++) {
      noted->seen[noted->n * 2 + (size_t)n] = (data[n] + i * strides[n] - noted->origin[n]) / 4;
    }
    noted->n++;
  }
}

/* Random shapes and strides, 0 and size 1 included: row-major order without sort; the same pairs with it. */
static void iterators_visit_every_element_once(void) {
  static int64_t seen[2 * 4096];
  static int64_t wanted[2 * 4096];
  static char buffer[2];
  for (int round = 0; round < 3000; round++) {
    uint32_t ndim = (uint32_t)(next_random() % 6);
    int64_t sizes[8], strides[2][8];
    for (uint32_t d = 0; d < ndim; d++) {
      sizes[d] = (int64_t)(next_random() % 16 == 0 ? 0 : next_random() % 4 + 1);
      for (int n = 0; n < 2; n++) strides[n][d] = (int64_t)(next_random() % 3 == 0 ? 0 : next_random() % 50);
    }
    if (round % 2 == 0) { /* dense operands, so that dimensions merge */
      int64_t step = 1;
      for (uint32_t d = ndim; d > 0; d--) {
        strides[0][d - 1] = step;
        strides[1][d - 1] = step;
        step *= sizes[d - 1];
      }
    }
    int64_t total = 1;
    for (uint32_t d = 0; d < ndim; d++) total *= sizes[d];
    for (int64_t i = 0; i < total; i++) {
      int64_t rest = i;
      wanted[2 * i] = 0;
      wanted[2 * i + 1] = 0;
      for (uint32_t d = ndim; d > 0; d--) {
        for (int n = 0; n < 2; n++) wanted[2 * i + n] += rest % sizes[d - 1] * strides[n][d - 1];
        rest /= sizes[d - 1];
      }
    }
    for (int sorted = 0; sorted < 2; sorted++) {
      trace noted = {seen, 0, {buffer, buffer}};
      fl_iter iter;
      fl_iter_init(&iter, ndim, sizes);
      for (int n = 0; n < 2; n++) fl_iter_operand(&iter, buffer, strides[n], 4);
      if (sorted) fl_iter_sort(&iter);
      fl_iter_coalesce(&iter);
      fl_iter_run(&iter, note, &noted);
      CHECK((int64_t)noted.n == total);
      int64_t sums[2] = {0, 0};
      for (int64_t i = 0; i < total; i++) {
        CHECK(sorted || (seen[2 * i] == wanted[2 * i] && seen[2 * i + 1] == wanted[2 * i + 1]));
        int64_t pair = seen[2 * i] * 1009 + seen[2 * i + 1];
        int64_t wanted_pair = wanted[2 * i] * 1009 + wanted[2 * i + 1];
        sums[0] += pair - wanted_pair;
        sums[1] += pair * pair - wanted_pair * wanted_pair;
      }
      CHECK(sums[0] == 0 && sums[1] == 0);
    }
  }
  int64_t dense_sizes[4] = {3, 1, 4, 5};
  int64_t dense_strides[4] = {20, 77, 5, 1};
  fl_iter iter;
  fl_iter_init(&iter, 4, dense_sizes);
  fl_iter_operand(&iter, buffer, dense_strides, 4);
  fl_iter_coalesce(&iter);
  CHECK(iter.ndim == 1 && iter.sizes[0] == 60 && iter.strides[0][0] == 4);
}

int main(void) {
  halves_round_once_to_even();
  iterators_visit_every_element_once();
  return 0;
}
