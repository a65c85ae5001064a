/* A plugin of the future: every table larger than this header knows, with slots behind. */
#include "fake.h"

static struct {
  fl_plugin known;
  uint64_t later[3];
} grown_root;
static struct {
  fl_device_api known;
  uint64_t later[5];
} grown_device;

EXPORT fl_status fl_plugin_query_v1(const fl_host* host, const fl_plugin** out, fl_error* err) {
  (void)host, (void)err;
  memset(&grown_root, 0xEE, sizeof(grown_root));
  memset(&grown_device, 0xEE, sizeof(grown_device));
  grown_root.known = root;
  grown_root.known.struct_size = sizeof(grown_root);
  grown_root.known.minor = 9;
  grown_device.known = device_api;
  grown_device.known.struct_size = sizeof(grown_device);
  grown_root.known.device = &grown_device.known;
  *out = &grown_root.known;
  return FL_OK;
}
