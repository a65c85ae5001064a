// Streams and events of logical devices.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device.h"
#include "error.h"

namespace torch_fl {

class EventPool;

// A stream of a device. Never destroyed before the process ends, so that a c10::Stream may hold its id for ever.
class Stream {
 public:
  Stream(Device& device, int64_t id, int32_t priority, fl_stream handle);  // StreamSet makes them

  Device& device;
  const int64_t id;  // 0: the device's default stream
  const int32_t priority;

  // For submitting. The handle changes when a failed stream is renewed; old handles stay valid until the process ends.
  fl_stream handle() const noexcept { return handle_.load(std::memory_order_acquire); }

  bool query();  // true when all submitted work has completed; raises the stream's failure, and renews it
  // Waits in slices, calling check_signals between them; raises the stream's failure, and renews the stream: a failed
  // asynchronous operation surfaces here, exactly once, unless an earlier submit already raised it.
  void synchronize();
  // Waits in slices for what was submitted before the call, and returns FL_OK or what failed; check_signals may throw.
  fl_status wait(VendorError& error);
  // Waits in slices until nothing submitted so far can touch memory any more. Raises no failure of the stream and
  // leaves it for others to see; check_signals may throw.
  void drain();
  // Replaces the vendor's stream if it has failed; the caller raises the failure. False: it hasn't, or no new one can
  // be had, in which case the failure stays and surfaces again.
  bool renew() noexcept;

 private:
  std::atomic<fl_stream> handle_;
};

// The streams of one device. Thread-safe.
class StreamSet {
 public:
  explicit StreamSet(Device& device);
  ~StreamSet();

  Stream& standard();                   // id 0; made at first use
  Stream& from_pool(int32_t priority);  // round robin over kPooled streams of that (clamped) priority
  Stream& create(int32_t priority);     // a new one; raises where priority is out of range
  Stream& by_id(int64_t id);            // raises kRuntime for an id that never was
  std::vector<Stream*> all();           // every stream made so far
  template <class F>
  void for_each(F&& visit) {  // the same; no lock is held in visit(Stream&)
    for (Stream* stream : all()) visit(*stream);
  }
  EventPool& events() noexcept { return *events_; }  // see event_pool.h

  static constexpr int kPooled = 32;

 private:
  Stream& add_locked(int32_t priority, fl_stream handle);

  struct Ring {
    int32_t priority;
    uint32_t next;
    std::vector<Stream*> streams;
  };
  Device& device_;
  std::mutex mutex_;  // held for no call of the vendor
  std::atomic<Stream*> standard_{nullptr};
  std::vector<std::unique_ptr<Stream>> streams_;  // index = id
  std::vector<Ring> rings_;                       // one per priority in use
  std::unique_ptr<EventPool> events_;
};

// The calling thread's current device and, for each device, its current stream.
int current_device() noexcept;
void set_current_device(int index);                // checked
int exchange_device(int index);                    // checked; -1: leaves it; returns the former
Stream& current_stream(Device& device);            // the default stream unless set
void set_current_stream(Stream& stream) noexcept;  // of its device, in this thread; leaves the current device

// Called in long waits, between slices, without the GIL; may throw (Ctrl-C). Set once by the bridge; null: nothing.
extern void (*check_signals)();

// An event; made by its first record, on that stream's device. External synchronisation as torch's events: record and
// destruction are exclusive, the others may be called concurrently.
class Event {
 public:
  Event(Device& device, bool timing);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  Device& device;
  const bool timing;

  void record(Stream& stream);  // stream.device must be device: raises kRuntime otherwise
  // Later work of the stream waits for the generation recorded last. Where the stream's vendor is another one, they
  // share no event: the calling thread waits, which counts as host_waits().
  void block(Stream& stream);
  bool query();  // never early; raises the failure that the record inherited
  void synchronize();
  double elapsed_ms(Event& end);  // both timing, recorded, complete, of one device; raises otherwise

 private:
  fl_event handle_ = nullptr;
};

uint64_t host_waits() noexcept;  // cross-vendor waits so far in this process

}  // namespace torch_fl
