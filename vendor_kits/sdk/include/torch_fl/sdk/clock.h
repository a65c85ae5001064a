/*
 * torch_fl/sdk/clock.h - monotonic time, and condition variables that wait until a deadline of that clock.
 */
#ifndef TORCH_FL_SDK_CLOCK_H
#define TORCH_FL_SDK_CLOCK_H

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>

#define FL_NS_PER_S 1000000000

/* Timeouts of the interface: 0 polls, FL_FOREVER waits without limit, anything else is nanoseconds from now. */
#define FL_FOREVER UINT64_MAX

static inline int64_t fl_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * FL_NS_PER_S + now.tv_nsec;
}

static inline void fl_sleep_ns(uint64_t nanoseconds) {
  struct timespec left = {(time_t)(nanoseconds / FL_NS_PER_S), (long)(nanoseconds % FL_NS_PER_S)};
  while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) continue;
}

typedef struct fl_deadline {
  uint64_t timeout_ns;
  struct timespec at; /* unused for 0 and FL_FOREVER */
} fl_deadline;

static inline fl_deadline fl_deadline_after(uint64_t timeout_ns) {
  fl_deadline deadline = {timeout_ns, {0, 0}};
  if (timeout_ns == 0 || timeout_ns == FL_FOREVER) return deadline;
  clock_gettime(CLOCK_MONOTONIC, &deadline.at);
  deadline.at.tv_sec += (time_t)(timeout_ns / FL_NS_PER_S);
  deadline.at.tv_nsec += (long)(timeout_ns % FL_NS_PER_S);
  if (deadline.at.tv_nsec >= FL_NS_PER_S) {
    deadline.at.tv_nsec -= FL_NS_PER_S;
    deadline.at.tv_sec += 1;
  }
  return deadline;
}

/* 0, or an errno. */
static inline int fl_cond_init(pthread_cond_t* cond) {
  pthread_condattr_t attributes;
  int failed = pthread_condattr_init(&attributes);
  if (failed) return failed;
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  failed = pthread_cond_init(cond, &attributes);
  pthread_condattr_destroy(&attributes);
  return failed;
}

/* Waits once on cond with mutex held. 1: woken, look again; 0: the deadline has passed. */
static inline int fl_cond_wait(pthread_cond_t* cond, pthread_mutex_t* mutex, const fl_deadline* deadline) {
  if (deadline->timeout_ns == 0) return 0;
  if (deadline->timeout_ns == FL_FOREVER) {
    pthread_cond_wait(cond, mutex);
    return 1;
  }
  return pthread_cond_timedwait(cond, mutex, &deadline->at) != ETIMEDOUT;
}

#endif /* TORCH_FL_SDK_CLOCK_H */
