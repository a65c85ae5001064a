/*
 * personality.h - the one thing in which the vendor's libraries differ. Each is linked from the same objects and one
 * personality_<name>.c.
 */
#ifndef FL_REFERENCE_PERSONALITY_H
#define FL_REFERENCE_PERSONALITY_H

#include "torch_fl/plugin.h"

extern const char ref_plugin_name[]; /* [a-z0-9_]+ */

typedef struct ref_personality {
  const char* device_name;  /* product name */
  uint32_t execution_model; /* FL_EXEC_* */
  uint32_t address_model;   /* FL_ADDRESS_* */
  uint64_t alloc_align;     /* bytes; every base is an odd multiple of it, or of the larger alignment asked for */
} ref_personality;

extern const ref_personality ref_this;

#endif /* FL_REFERENCE_PERSONALITY_H */
