/* personality_async.c - `reference`: worker threads behind every stream, addresses with which a host may reckon. */
#include "personality.h"

const char ref_plugin_name[] = "reference";

const ref_personality ref_this = {
    .device_name = "Torch-FL reference device",
    .execution_model = FL_EXEC_ASYNC,
    .address_model = FL_ADDRESS_LINEAR,
    .alloc_align = 64,
};
