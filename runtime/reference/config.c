/* config.c - the environment variables FL_REFERENCE_* and the options of device_open. */
#include <stdlib.h>

#include "core.h"

#define DEFAULT_DEVICES 2
#define DEFAULT_MEMORY (8ull << 30)
#define SMALLEST_MEMORY (1ull << 20)
#define LARGEST_MEMORY (1ull << 40)
#define MEMORY_STEP 65536 /* a multiple of 2 * alloc_align of every personality */

static pthread_once_t devices_once = PTHREAD_ONCE_INIT;
static long devices_value; /* -1: the variable makes no sense */

/* The whole text as a decimal number, -1 when it is none. */
static long long parse_number(const char* text, const char** out_end) {
  char* end = NULL;
  if (*text < '0' || *text > '9') return -1;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  if (errno != 0) return -1;
  *out_end = end;
  return value;
}

static void read_devices(void) {
  const char* text = getenv("FL_REFERENCE_DEVICES");
  const char* end = "";
  long long value = text == NULL ? DEFAULT_DEVICES : parse_number(text, &end);
  if (*end != '\0' || value > REF_MAX_DEVICES) value = -1;
  devices_value = (long)value;
}

fl_status ref_config_devices(int32_t* out, fl_error* err) {
  pthread_once(&devices_once, read_devices);
  if (devices_value < 0) {
    return fl_fail(err, FL_FAILED_PRECONDITION, "FL_REFERENCE_DEVICES is not a number from 0 to %d", REF_MAX_DEVICES);
  }
  *out = (int32_t)devices_value;
  return FL_OK;
}

/* "8589934592", "8G", "8GiB", "512M": bytes, 0 when it is no size. */
static uint64_t parse_size(const char* text, size_t length) {
  char copy[32];
  if (length == 0 || length >= sizeof copy) return 0;
  memcpy(copy, text, length);
  copy[length] = '\0';
  const char* end = "";
  long long value = parse_number(copy, &end);
  if (value <= 0) return 0;
  static const char units[] = "KMGT";
  const char* unit = *end != '\0' ? strchr(units, *end) : NULL;
  uint64_t shift = 0;
  if (unit != NULL) {
    shift = 10 * (uint64_t)(unit - units + 1);
    end++;
    if (strcmp(end, "iB") == 0) end += 2;
  }
  if (*end != '\0' || (uint64_t)value > LARGEST_MEMORY >> shift) return 0;
  return (uint64_t)value << shift;
}

static fl_status accept_memory(const char* text, size_t length, const char* name, fl_status status, uint64_t* out,
                               fl_error* err) {
  uint64_t bytes = parse_size(text, length);
  if (bytes < SMALLEST_MEMORY || bytes > LARGEST_MEMORY) {
    return fl_fail(err, status, "%s=%.*s is not a size from 1M to 1T", name, (int)fl_utf8_cut(text, length, 64), text);
  }
  *out = bytes / MEMORY_STEP * MEMORY_STEP;
  return FL_OK;
}

/* One "key=value". */
static fl_status accept_option(const char* option, size_t length, uint64_t* out_memory, fl_error* err) {
  static const char memory[] = "memory=";
  const char* equals = memchr(option, '=', length);
  size_t key_length = equals != NULL ? (size_t)(equals - option) : length;
  if (equals == NULL || key_length != sizeof memory - 2 || memcmp(option, memory, key_length + 1) != 0) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "unknown option '%.*s'", (int)fl_utf8_cut(option, key_length, 200),
                   option);
  }
  return accept_memory(equals + 1, length - key_length - 1, "memory", FL_INVALID_ARGUMENT, out_memory, err);
}

fl_status ref_config_memory(const char* options, uint64_t* out_bytes, fl_error* err) {
  uint64_t bytes = DEFAULT_MEMORY;
  const char* text = getenv("FL_REFERENCE_MEMORY");
  if (text != NULL) {
    FL_TRY(accept_memory(text, strlen(text), "FL_REFERENCE_MEMORY", FL_FAILED_PRECONDITION, &bytes, err));
  }
  const char* rest = options != NULL ? options : "";
  while (*rest != '\0') {
    size_t length = strcspn(rest, ";");
    if (length > 0) FL_TRY(accept_option(rest, length, &bytes, err));
    rest += length;
    if (*rest == ';') rest++;
  }
  *out_bytes = bytes;
  return FL_OK;
}
