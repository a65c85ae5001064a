/* A log sink whose lock the driver can hold around a call: a plugin that logs with one of its own locks
 * held deadlocks against it [FL-THREAD-004]. */
#define _GNU_SOURCE
#include "torch_fl_helper.h"

#include <pthread.h>
#include <string.h>

enum { KEPT = 64, TEXT = 256 };

static pthread_mutex_t sink_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static uint64_t messages;
static char texts[KEPT][TEXT];
static int32_t levels[KEPT];

void flh_log(void* user, int32_t level, const char* message) {
  (void)user;
  pthread_mutex_lock(&sink_lock);
  uint64_t slot = messages++ % KEPT;
  levels[slot] = level;
  strncpy(texts[slot], message ? message : "(null)", TEXT - 1);
  pthread_mutex_unlock(&sink_lock);
}

void flh_log_lock(void) { pthread_mutex_lock(&sink_lock); }

void flh_log_unlock(void) { pthread_mutex_unlock(&sink_lock); }

uint64_t flh_log_count(void) {
  pthread_mutex_lock(&sink_lock);
  uint64_t count = messages;
  pthread_mutex_unlock(&sink_lock);
  return count;
}

int32_t flh_log_read(uint64_t number, char* text, uint64_t capacity) {
  pthread_mutex_lock(&sink_lock);
  int32_t level = levels[number % KEPT];
  strncpy(text, texts[number % KEPT], capacity - 1);
  pthread_mutex_unlock(&sink_lock);
  text[capacity - 1] = 0;
  return level;
}
