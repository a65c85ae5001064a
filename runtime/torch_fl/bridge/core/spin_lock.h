// A lock for sections of some ten instructions: half the price of a mutex, which is most of what the pool's fast path
// costs. Nothing that may wait or call a vendor is done under it.
#pragma once
#include <sched.h>

#include <atomic>

#include "fork.h"

namespace torch_fl {

class SpinLock {
 public:
  // False: never to be had, since its holder did not come along into this forked child.
  bool lock() noexcept {
    if (__builtin_expect(!held_.exchange(true, std::memory_order_acquire), 1)) return true;
    return lock_contended();
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  __attribute__((noinline)) bool lock_contended() noexcept {
    for (int tries = 0; !forked(); tries++) {
      if (!held_.load(std::memory_order_relaxed) && !held_.exchange(true, std::memory_order_acquire)) return true;
      if (tries < 100) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
      } else {
        sched_yield();  // the holder may have lost its core
      }
    }
    return false;
  }

  std::atomic<bool> held_{false};
};

// Raises kRuntime where the lock is never to be had.
class SpinGuard {
 public:
  explicit SpinGuard(SpinLock& lock) : lock_(lock) {
    if (__builtin_expect(!lock_.lock(), 0)) refuse_forked();
  }
  ~SpinGuard() { lock_.unlock(); }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  SpinLock& lock_;
};

}  // namespace torch_fl
