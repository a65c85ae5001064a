/* personality_inline.c - `reference_inline`: every submit returns after completion, bases are mere numbers. */
#include "personality.h"

const char ref_plugin_name[] = "reference_inline";

const ref_personality ref_this = {
    .device_name = "Torch-FL reference device, inline",
    .execution_model = FL_EXEC_INLINE,
    .address_model = FL_ADDRESS_HANDLE,
    .alloc_align = 4096,
};
