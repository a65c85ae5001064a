/* What a plugin call must leave as it was [FL-ERROR-005], and a last word at process exit [FL-THREAD-007]. */
#define _GNU_SOURCE
#include "torch_fl_helper.h"

#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

extern char** environ;

/* FNV-1a, 64 bits. */
static uint64_t mixed(uint64_t hash, const void* data, uint64_t bytes) {
  const unsigned char* byte = data;
  for (uint64_t n = 0; n < bytes; n++) hash = (hash ^ byte[n]) * 0x100000001B3u;
  return hash;
}

static const uint64_t seed = 0xCBF29CE484222325u;

static uint64_t signal_dispositions(void) {
  uint64_t hash = seed;
  for (int number = 1; number < NSIG; number++) {
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    if (sigaction(number, NULL, &action)) continue;
    hash = mixed(hash, &action.sa_sigaction, sizeof(action.sa_sigaction));
    hash = mixed(hash, &action.sa_flags, sizeof(action.sa_flags));
  }
  return hash;
}

/* Control bits only: the exception flags are sticky and any arithmetic sets them. */
static uint64_t floating_point_control(void) {
#if defined(__x86_64__)
  uint32_t mxcsr = 0;
  uint16_t x87 = 0;
  __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
  __asm__ volatile("fnstcw %0" : "=m"(x87));
  return (uint64_t)x87 << 32 | (mxcsr & ~0x3Fu);
#elif defined(__aarch64__)
  uint64_t fpcr = 0;
  __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
  return fpcr;
#else
#error "x86-64 and aarch64 only"
#endif
}

/* As the kernel tells it: umask() would have to set it for a moment. Where nothing can be read - no /proc, no free
 * descriptor - as it was read last. */
static uint64_t creation_mask(void) {
  static _Atomic uint64_t last;
  char text[512];
  int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? 0 : read(file, text, sizeof(text) - 1);
  if (file >= 0) close(file);
  text[length > 0 ? length : 0] = 0;
  const char* line = strstr(text, "\nUmask:");
  if (line) last = strtoul(line + strlen("\nUmask:"), NULL, 8);
  return last;
}

void flh_process_state(flh_state* out) {
  char directory[4096] = "";
  if (!getcwd(directory, sizeof(directory))) directory[0] = 0;
  uint64_t environment = seed;
  for (char** entry = environ; entry && *entry; entry++) environment = mixed(environment, *entry, strlen(*entry) + 1);
  const char* locale = setlocale(LC_ALL, NULL);
  uint64_t limits = seed;
  for (int resource = 0; resource < RLIM_NLIMITS; resource++) {
    struct rlimit limit = {0, 0};
    if (getrlimit(resource, &limit) == 0) limits = mixed(limits, &limit, sizeof(limit));
  }
  sigset_t blocked;
  sigemptyset(&blocked);
  pthread_sigmask(SIG_SETMASK, NULL, &blocked);
  uint64_t mask = 0;
  for (int number = 1; number < NSIG && number <= 64; number++)
    mask |= (uint64_t)(sigismember(&blocked, number) == 1) << (number - 1);
  *out = (flh_state){.signals = signal_dispositions(),
                     .signal_mask = mask,
                     .floating_point = floating_point_control(),
                     .environment = environment,
                     .directory = mixed(seed, directory, strlen(directory)),
                     .locale = mixed(seed, locale, locale ? strlen(locale) : 0),
                     .limits = limits,
                     .umask = creation_mask()};
}

static const fl_plugin* plugin_at_exit;

static void shut_down(void) { plugin_at_exit->shutdown(NULL); }

int32_t flh_shutdown_at_exit(const fl_plugin* plugin) {
  plugin_at_exit = plugin;
  return atexit(shut_down);
}
