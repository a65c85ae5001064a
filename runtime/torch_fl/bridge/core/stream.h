// Streams and events of logical devices.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device.h"

namespace torch_fl {

// A stream of a device. Never destroyed before the process ends, so that a c10::Stream may hold its id for ever.
class Stream {
 public:
  Stream(Device& device, int64_t id, int32_t priority);

  Device& device;
  const int64_t id;  // 0: the device's default stream
  const int32_t priority;

  // For submitting. The handle changes when a failed stream is renewed; old handles stay valid until the process ends.
  fl_stream handle() const noexcept { return handle_.load(std::memory_order_acquire); }

  bool query();  // true when all submitted work has completed; raises the stream's failure, and renews it
  // Waits in slices, calling check_signals between them; raises the stream's failure, and renews the stream: a failed
  // asynchronous operation surfaces here, exactly once, unless an earlier submit already raised it.
  void synchronize();

 private:
  void report_failure(fl_status status, const class VendorError& error);
  std::atomic<fl_stream> handle_;
};

// The streams of one device. Thread-safe.
class StreamSet {
 public:
  explicit StreamSet(Device& device) : device_(device) {}

  Stream& standard();                    // id 0; made at first use
  Stream& from_pool(int32_t priority);   // round robin over kPooled streams of that (clamped) priority
  Stream& create(int32_t priority);      // a new one; raises where priority is out of range
  Stream& by_id(int64_t id);             // raises kRuntime for an id that never was
  template <class F>
  void for_each(F&& visit);              // every stream made so far

  static constexpr int kPooled = 32;

 private:
  Device& device_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Stream>> streams_;  // index = id
};

// The calling thread's current device and, for each device, its current stream.
int current_device() noexcept;
void set_current_device(int index);             // checked
int exchange_device(int index);                 // checked; -1: leaves it; returns the former
Stream& current_stream(Device& device);         // the default stream unless set
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
  fl_event handle_;
};

// Events that the bridge itself uses, recycled (creating one costs more than recording it). Thread-safe.
class EventPool;

uint64_t host_waits() noexcept;  // cross-vendor waits so far in this process

}  // namespace torch_fl
