/*
 * random.h - the generator of random.c, for kernels that draw something else than numbers.
 */
#ifndef REF_KERNELS_RANDOM_H
#define REF_KERNELS_RANDOM_H

#include "torch_fl/plugin.h"

typedef struct ref_words {
  uint32_t w[4];
} ref_words;

/* The four words of counter rng.offset + group by Philox4x32-10. Pure; any thread. */
ref_words ref_philox(fl_rng rng, uint64_t group);

#endif /* REF_KERNELS_RANDOM_H */
