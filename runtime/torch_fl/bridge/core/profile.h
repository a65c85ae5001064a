// What profiles count: by whom each operator's calls were served, how long they took, how long their host waited.
//
// Code that serves calls only notes what it does; without a running profile a note is one relaxed load. Whoever sees
// operators begin and end (profile.cpp of the bridge) opens and finishes a ProfiledCall for each.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "device.h"

namespace torch_fl {

// By whom a call was served; of several, the last one in this order counts.
enum class ServedBy : uint8_t {
  kHost,      // nobody on the device: memory was allocated, or the host waited
  kMemory,    // copies and fills of the vendor
  kNative,    // a kernel of the device
  kRelayout,  // the same, after operands had been copied into a layout that it takes
  kGeneric,   // other operators on the device
  kCpu,       // the host
};

// Sums over calls. Times in ns.
struct Measured {
  uint64_t calls = 0;
  uint64_t host_ns = 0;   // from begin to end, without operators within that have sums of their own
  uint64_t wait_ns = 0;   // of these, blocked until a stream or an event had completed
  uint64_t waits = 0;
  uint64_t added_ns = 0;  // of host_ns, in waits that the profile itself adds behind each call
  uint64_t bytes_to_device = 0, bytes_to_host = 0;
  uint64_t shape_hits = 0, shape_misses = 0;

  void add(const Measured& other) noexcept;
};

extern std::atomic<int> running_profiles;
inline bool profiling() noexcept {
  return __builtin_expect(running_profiles.load(std::memory_order_relaxed) != 0, 0);
}

// One call of an operator in the calling thread, from its construction on: what is noted meanwhile is its own, unless
// an operator within begins. Begin and end nest.
class ProfiledCall {
 public:
  ProfiledCall() noexcept;
  ~ProfiledCall();
  ProfiledCall(const ProfiledCall&) = delete;
  ProfiledCall& operator=(const ProfiledCall&) = delete;

  // The device of the first note; null: nothing was noted, and the call is none of ours.
  Device* device() const noexcept { return device_; }
  ServedBy served_by() const noexcept { return served_by_; }
  // Calls wait(), whose time is part of the call's and which counts as added.
  template <class Wait>
  void add_wait(Wait&& wait);
  // Adds the call to the operator's sums; once, at its end, and only where device() is not null. What an operator on
  // the host tier calls in order to move its operands is part of that operator.
  void finish(const std::string& op);

 private:
  friend struct Notes;
  ProfiledCall* const outer_;
  Device* device_ = nullptr;
  ServedBy served_by_ = ServedBy::kHost;
  const uint64_t begin_ns_;
  uint64_t within_ns_ = 0;  // of operators within that have sums of their own
  Measured own_;
};

// ---- Notes ---------------------------------------------------------------------------------------------------------

struct Notes {
  static void served(Device& device, ServedBy by);
  static void moved(Device& device, uint64_t to_device, uint64_t to_host);
  static void shape(bool hit) noexcept;
  static uint64_t begin_wait() noexcept;  // 0: within another wait
  static void end_wait(Device& device, uint64_t begin_ns);
  static void end_added_wait(ProfiledCall& call, uint64_t begin_ns) noexcept;
};

inline void note_served(Device& device, ServedBy by) {
  if (profiling()) Notes::served(device, by);
}
inline void note_moved(Device& device, uint64_t to_device, uint64_t to_host) {
  if (profiling()) Notes::moved(device, to_device, to_host);
}
inline void note_shape(bool hit) noexcept {
  if (profiling()) Notes::shape(hit);
}

// The calling thread waits for the device for as long as this lives: one wait, of whatever waits it is made.
class NotedWait {
 public:
  explicit NotedWait(Device& device) noexcept : device_(device), begin_ns_(profiling() ? Notes::begin_wait() : 0) {}
  ~NotedWait() {
    if (begin_ns_ != 0) Notes::end_wait(device_, begin_ns_);
  }
  NotedWait(const NotedWait&) = delete;
  NotedWait& operator=(const NotedWait&) = delete;

 private:
  Device& device_;
  const uint64_t begin_ns_;  // 0: not noted
};

template <class Wait>
void ProfiledCall::add_wait(Wait&& wait) {
  struct Added {
    ProfiledCall& call;
    const uint64_t begin_ns = Notes::begin_wait();
    ~Added() {
      if (begin_ns != 0) Notes::end_added_wait(call, begin_ns);
    }
  } added{*this};
  wait();
}

// ---- Sums ----------------------------------------------------------------------------------------------------------

// Of one operator on one device, as far as it was served in one way. `op` is "" where no operator's call was underway,
// as in a user's own synchronize().
struct Profiled {
  int device;
  std::string op;
  ServedBy served_by;
  Measured sums;
};

// Sums over all threads since the process began, of calls that have ended: a profile is the difference of two of these.
// Raises in a forked child.
std::vector<Profiled> profiled_so_far();

}  // namespace torch_fl
