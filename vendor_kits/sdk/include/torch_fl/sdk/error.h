/*
 * torch_fl/sdk/error.h - filling the host's fl_error [FL-ERROR-001, 003].
 *
 * The text is formatted on the stack and copied into the host's buffer, cut at a UTF-8 boundary; bytes behind the
 * terminating NUL stay as they were. Nothing is allocated and nothing is kept between calls or threads.
 */
#ifndef TORCH_FL_SDK_ERROR_H
#define TORCH_FL_SDK_ERROR_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "torch_fl/plugin.h"

#define FL_SDK_MESSAGE_BYTES 1024 /* longest text, NUL included */

/* 1 when err is NULL or a struct that may be written to. Every function of a plugin asks this before anything else
 * and returns FL_INVALID_ARGUMENT where it is 0: such an err cannot even be told so. */
static inline int fl_error_usable(const fl_error* err) {
  if (err == NULL) return 1;
  if (err->kind != FL_KIND_ERROR) return 0;
  return err->struct_size >= FL_SIZE_V1_0_ERROR;
}

/* The largest number of bytes <= limit that ends `text` (of `length` bytes) between two UTF-8 characters. */
static inline uint64_t fl_utf8_cut(const char* text, uint64_t length, uint64_t limit) {
  if (length <= limit) return length;
  uint64_t cut = limit;
  while (cut > 0 && ((unsigned char)text[cut] & 0xC0u) == 0x80u) cut--;
  return cut;
}

/* Writes code, vendor_code and text into err (may be NULL) and returns status. */
static inline fl_status fl_error_set(fl_error* err, fl_status status, int64_t vendor_code, const char* text) {
  if (err == NULL || !fl_error_usable(err)) return status;
  err->code = status;
  err->pad = 0;
  err->vendor_code = vendor_code;
  err->length = 0;
  if (err->message == NULL || err->capacity == 0) return status;
  uint64_t length = fl_utf8_cut(text, strlen(text), err->capacity - 1);
  memcpy(err->message, text, length);
  err->message[length] = '\0';
  err->length = length;
  return status;
}

__attribute__((format(printf, 3, 0))) static inline fl_status fl_failv(fl_error* err, fl_status status,
                                                                       const char* format, va_list args) {
  char text[FL_SDK_MESSAGE_BYTES];
  int wanted = vsnprintf(text, sizeof text, format, args);
  if (wanted < 0) return fl_error_set(err, status, 0, format);
  if ((size_t)wanted >= sizeof text) {
    /* vsnprintf may have cut a character in two: drop its beginning. */
    uint64_t last = sizeof text - 2;
    while (last > 0 && ((unsigned char)text[last] & 0xC0u) == 0x80u) last--;
    if ((unsigned char)text[last] >= 0xC0u) text[last] = '\0';
  }
  return fl_error_set(err, status, 0, text);
}

/* return fl_fail(err, FL_INVALID_ARGUMENT, "count is %d", count); */
__attribute__((format(printf, 3, 4))) static inline fl_status fl_fail(fl_error* err, fl_status status,
                                                                      const char* format, ...) {
  if (err == NULL) return status;
  va_list args;
  va_start(args, format);
  fl_status result = fl_failv(err, status, format, args);
  va_end(args);
  return result;
}

#endif /* TORCH_FL_SDK_ERROR_H */
