/*
 * torch_fl/sdk/float_environment.h - the default floating-point environment for work on a borrowed thread, which
 * may round otherwise or flush subnormals; its own comes back afterwards.
 *
 *     fl_float_environment kept;
 *     fl_float_enter(&kept);
 *     ...
 *     fl_float_leave(&kept);
 *
 * Exceptions that the work raises don't show in the thread's flags, but for those of long double on x86.
 */
#ifndef TORCH_FL_SDK_FLOAT_ENVIRONMENT_H
#define TORCH_FL_SDK_FLOAT_ENVIRONMENT_H

#include <fenv.h>
#include <stdint.h>

#if defined(__x86_64__)

/* The control words alone: saving and restoring all of the x87 state, as fegetenv and fesetenv do, takes longer than a
 * small kernel. */
typedef struct fl_float_environment {
  uint32_t sse;
  uint16_t x87;
} fl_float_environment;

static inline void fl_float_set(uint32_t sse, uint16_t x87) {
  __asm__ volatile("ldmxcsr %0" : : "m"(sse));
  __asm__ volatile("fldcw %0" : : "m"(x87));
}

static inline void fl_float_enter(fl_float_environment* kept) {
  __asm__ volatile("stmxcsr %0" : "=m"(kept->sse));
  __asm__ volatile("fnstcw %0" : "=m"(kept->x87));
  fl_float_set(0x1f80, 0x037f);
}

static inline void fl_float_leave(const fl_float_environment* kept) { fl_float_set(kept->sse, kept->x87); }

#else

typedef struct fl_float_environment {
  fenv_t all;
} fl_float_environment;

static inline void fl_float_enter(fl_float_environment* kept) {
  fegetenv(&kept->all);
  fesetenv(FE_DFL_ENV);
}

static inline void fl_float_leave(const fl_float_environment* kept) { fesetenv(&kept->all); }

#endif

#endif /* TORCH_FL_SDK_FLOAT_ENVIRONMENT_H */
