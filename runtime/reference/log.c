/* log.c - lines for the host's log function, if it gave one at the handshake [FL-THREAD-004]. */
#include "core.h"

static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
static fl_log_fn log_fn;
static void* log_user;

void ref_log_to(const fl_host* host) {
  pthread_mutex_lock(&log_mutex);
  log_fn = host->log;
  log_user = host->log_user;
  pthread_mutex_unlock(&log_mutex);
}

void ref_log(int32_t level, const char* format, ...) {
  pthread_mutex_lock(&log_mutex);
  fl_log_fn fn = log_fn;
  void* user = log_user;
  pthread_mutex_unlock(&log_mutex);
  if (fn == NULL) return;
  char text[FL_SDK_MESSAGE_BYTES];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  fn(user, level, text);
}
