/*
 * random.c - uniform and normal_functional from Philox4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011).
 *
 * Key: (low, high 32 bits of seed). Counter: (low, high 32 bits of c, 0, 0) with c = offset + group, where a group
 * makes 4 values (uniform f32, f16, bf16) or 2 (uniform f64, normal) of the output in row-major order. A value thus
 * depends on seed, offset and its place alone.
 */
#include <math.h>

#include "move.h"
#include "random.h"

#define TWO_PI 6.28318530717958647692

/* ---- Philox ---------------------------------------------------------------------------------- */

ref_words ref_philox(fl_rng rng, uint64_t group) {
  uint64_t count = rng.offset + group;
  uint32_t key0 = (uint32_t)rng.seed;
  uint32_t key1 = (uint32_t)(rng.seed >> 32);
  ref_words x = {{(uint32_t)count, (uint32_t)(count >> 32), 0, 0}};
  for (int round = 0; round < 10; round++) {
    uint64_t product0 = (uint64_t)0xD2511F53u * x.w[0];
    uint64_t product1 = (uint64_t)0xCD9E8D57u * x.w[2];
    ref_words next;
    next.w[0] = (uint32_t)(product1 >> 32) ^ x.w[1] ^ key0;
    next.w[1] = (uint32_t)product1;
    next.w[2] = (uint32_t)(product0 >> 32) ^ x.w[3] ^ key1;
    next.w[3] = (uint32_t)product0;
    x = next;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return x;
}

/* The 53-bit number of a pair of words, pair 0 or 1, low word first. */
static uint64_t bits53(ref_words x, int pair) {
  uint64_t low = x.w[2 * pair];
  uint64_t high = x.w[2 * pair + 1];
  return (high << 32 | low) >> 11;
}

/* ---- One group of values, in double ---------------------------------------------------------- */

struct random_work;

/* Fills values with the 4 or 2 of a group. */
typedef void (*group_fn)(const struct random_work* work, uint64_t group, double* values);

typedef struct random_work {
  ref_view out;
  group_fn group;
  int64_t group_size; /* 4 or 2 */
  int32_t below;      /* 1: values stay below `second` after rounding */
  fl_rng rng;
  double first;  /* from, or mean */
  double second; /* to, or standard deviation */
} random_work;

static double stretch(const random_work* work, double u) {
  return work->first + u * (work->second - work->first);
}

/* The high BITS bits of each word, times UNIT = 2^-BITS. */
#define UNIFORM_GROUP(NAME, BITS, UNIT)                                                      \
  static void uniform_##NAME(const random_work* work, uint64_t group, double* values) {      \
    ref_words x = ref_philox(work->rng, group);                                              \
    for (int i = 0; i < 4; i++) {                                                            \
      values[i] = stretch(work, (double)(x.w[i] >> (32 - (BITS))) * (UNIT));                 \
    }                                                                                        \
  }

UNIFORM_GROUP(f32, 24, 0x1p-24)
UNIFORM_GROUP(f16, 11, 0x1p-11)
UNIFORM_GROUP(bf16, 8, 0x1p-8)

static void uniform_f64(const random_work* work, uint64_t group, double* values) {
  ref_words x = ref_philox(work->rng, group);
  values[0] = stretch(work, (double)bits53(x, 0) * 0x1p-53);
  values[1] = stretch(work, (double)bits53(x, 1) * 0x1p-53);
}

/* Box and Muller 1958; the first uniform is in (0, 1]. */
static void normal_group(const random_work* work, uint64_t group, double* values) {
  ref_words x = ref_philox(work->rng, group);
  double u1 = (double)(bits53(x, 0) + 1) * 0x1p-53;
  double u2 = (double)bits53(x, 1) * 0x1p-53;
  double radius = sqrt(-2 * log(u1));
  values[0] = work->first + work->second * (radius * cos(TWO_PI * u2));
  values[1] = work->first + work->second * (radius * sin(TWO_PI * u2));
}

/* ---- Elements in row-major order ------------------------------------------------------------- */

typedef struct progress {
  const random_work* work;
  int64_t* index; /* of the next element */
  double* values; /* of its group */
} progress;

/* The next smaller number of the dtype: floating formats order their bits by magnitude. */
static void step_down(char* at, uint32_t dtype) {
  uint64_t bits = 0;
  uint32_t bytes = fl_dtype_size(dtype);
  memcpy(&bits, at, bytes);
  uint64_t sign = (uint64_t)1 << (8 * bytes - 1);
  if ((bits & ~sign) == 0) {
    bits = sign | 1;
  } else if (bits & sign) {
    bits += 1;
  } else {
    bits -= 1;
  }
  memcpy(at, &bits, bytes);
}

static double load_double(const char* at, uint32_t dtype) {
  switch (dtype) {
    case FL_DTYPE_F16:
      return (double)ref_load_f16(at);
    case FL_DTYPE_BF16:
      return (double)ref_load_bf16(at);
    case FL_DTYPE_F32:
      return (double)ref_load_f32(at);
    default:
      return ref_load_f64(at);
  }
}

static void random_loop(char* const* data, const int64_t* step, int64_t n, const void* context) {
  const progress* now = context;
  const random_work* work = now->work;
  for (int64_t i = 0; i < n; i++) {
    int64_t place = *now->index % work->group_size;
    if (place == 0) {
      work->group(work, (uint64_t)(*now->index / work->group_size), now->values);
    }
    fl_scalar value = {FL_TAG_FLOAT, 0, now->values[place]};
    char* at = data[0] + i * step[0];
    ref_store_number(at, work->out.dtype, value);
    if (work->below && load_double(at, work->out.dtype) >= work->second) {
      step_down(at, work->out.dtype);
    }
    *now->index += 1;
  }
}

static void execute_random(const void* payload) {
  const random_work* work = payload;
  int64_t index = 0;
  double values[4] = {0};
  progress now = {work, &index, values};
  fl_iter iter;
  fl_iter_init(&iter, work->out.ndim, work->out.sizes);
  fl_iter_operand(&iter, work->out.data, work->out.strides, fl_dtype_size(work->out.dtype));
  fl_iter_coalesce(&iter);
  fl_iter_run(&iter, random_loop, &now);
}

/* ---- Kernels --------------------------------------------------------------------------------- */

typedef struct random_op {
  ref_signature signature;
  group_fn groups[REF_DTYPES];
  int32_t values; /* that a group makes of f32, f16 and bf16; of f64 it makes 2 */
  int32_t below;
} random_op;

#define RANDOM {{{REF_FLOAT, 0}, {REF_FLOAT, 0}, {REF_RNG, 0}}, {{REF_TENSOR, 0}}}

static const random_op uniform_op = {
    RANDOM,
    {[FL_DTYPE_F32] = uniform_f32, [FL_DTYPE_F16] = uniform_f16, [FL_DTYPE_BF16] = uniform_bf16,
     [FL_DTYPE_F64] = uniform_f64},
    4,
    1,
};

static const random_op normal_op = {
    RANDOM,
    {[FL_DTYPE_F32] = normal_group, [FL_DTYPE_F16] = normal_group, [FL_DTYPE_BF16] = normal_group,
     [FL_DTYPE_F64] = normal_group},
    2,
    0,
};

static int64_t group_size(const random_op* op, uint32_t dtype) {
  return dtype == FL_DTYPE_F64 ? 2 : op->values;
}

static fl_status plan_random(const fl_kernel* kernel, fl_device device, const fl_call* call, fl_plan* out,
                             fl_error* err) {
  FL_TRY(ref_plan_simple(kernel, device, call, out, err));
  const fl_tensor* tensor = call->outs[0];
  int64_t size = group_size(kernel->user, tensor->dtype);
  int64_t groups = tensor->numel / size + (tensor->numel % size != 0);
  fl_plan_set(out, 0, 0, (uint64_t)groups);
  return FL_OK;
}

static fl_status run_random(const fl_kernel* kernel, fl_stream stream, const fl_call* call, fl_error* err) {
  ref_types types;
  FL_TRY(ref_check(kernel, call, &types, err));
  FL_TRY(fl_check_pointer(stream, "stream", err));
  const random_op* op = kernel->user;
  random_work work;
  memset(&work, 0, sizeof work);
  FL_TRY(ref_view_of(stream, call->outs[0], &work.out, err));
  work.group = op->groups[work.out.dtype];
  work.group_size = group_size(op, work.out.dtype);
  work.first = call->args[0].value.f;
  work.second = call->args[1].value.f;
  work.below = op->below && work.first < work.second;
  work.rng = call->args[2].value.rng;
  return ref_submit(stream, execute_random, &work, sizeof work, err);
}

#define EXACT_ROW(DTYPE) {sizeof(fl_kernel_row), FL_KIND_KERNEL_ROW, {DTYPE}, FL_DTYPE_NONE, 0, 0, FL_ROW_PHILOX_EXACT},
static const fl_kernel_row rows_exact_bits[4] = {REF_FLOATS(EXACT_ROW)};

const fl_kernel ref_kernels_random[] = {
    REF_KERNEL("uniform", 1, rows_exact_bits, FL_TIER_ACCURATE, 0, &uniform_op, plan_random, run_random),
    REF_KERNEL("normal_functional", 1, ref_rows_floats, FL_TIER_ACCURATE, 0, &normal_op, plan_random, run_random),
};

const uint32_t ref_kernels_random_count = REF_COUNT(ref_kernels_random);
