/*
 * A fake whose card stays broken: an alignment of 3 leaves the file named by WEDGE behind and aborts; while that file
 * exists, in whatever process, no copy works.
 */
#include <stdio.h>
#include <unistd.h>

#include "fake.h"

static fl_status wedge_alloc(fl_device device, const fl_mem_alloc_args* args, uint64_t* out, fl_error* err) {
  if (args && args->alignment == 3) {
    fclose(fopen(getenv("WEDGE"), "w"));
    abort();
  }
  return mem_alloc(device, args, out, err);
}

static fl_status wedge_copy(fl_stream stream, const fl_copy_args* args, fl_error* err) {
  if (!access(getenv("WEDGE"), F_OK)) return fail(err, FL_DEVICE_LOST, "the card is gone");
  return mem_copy(stream, args, err);
}

EXPORT fl_status fl_plugin_query_v1(const fl_host* host, const fl_plugin** out, fl_error* err) {
  (void)host, (void)err;
  static fl_memory_api memory;
  static fl_plugin wedged;
  memory = memory_api;
  memory.alloc = wedge_alloc;
  memory.copy = wedge_copy;
  wedged = root;
  wedged.memory = &memory;
  *out = &wedged;
  return FL_OK;
}
