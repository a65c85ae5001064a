/* How much malloc has given out, or keeps for a thread: a leak shows in this number long before the process has to grow [FL-THREAD-005]. */
#define _GNU_SOURCE
#include "torch_fl_helper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GLIBC__)
#include <malloc.h>

/* The number behind `name` in malloc_info's closing sums. */
static uint64_t sum_of(const char* sums, const char* name) {
  const char* entry = strstr(sums, name);
  const char* size = entry ? strstr(entry, "size=\"") : NULL;
  return size ? strtoull(size + strlen("size=\""), NULL, 10) : 0;
}

uint64_t flh_heap_bytes(void) {
  char* text = NULL;
  size_t length = 0;
  FILE* stream = open_memstream(&text, &length);
  if (!stream) return 0;
  malloc_info(0, stream);
  fclose(stream);
  const char* sums = text;
  for (const char* end = text; (end = strstr(end, "</heap>")) != NULL; end += strlen("</heap>")) sums = end;
  uint64_t whole = sum_of(sums, "<system type=\"current\"") + sum_of(sums, "<total type=\"mmap\"");
  uint64_t unused = sum_of(sums, "<total type=\"fast\"") + sum_of(sums, "<total type=\"rest\"");
  free(text);
  return whole - unused;
}
#else
uint64_t flh_heap_bytes(void) { return 0; }
#endif
