// Many threads on three devices of two vendors at once; made to be run under ASan, UBSan and TSan. Every byte that a
// thread reads has one right value, and no two live blocks may meet.
#include <algorithm>
#include <atomic>
#include <map>
#include <random>

#include "harness.h"

using namespace harness;

namespace {

constexpr int kThreads = 8;
constexpr int kOperations = 10000;  // of each thread
constexpr int kShared = 3;          // streams of a device that all threads use

Stream* shared_streams[3][kShared];
std::atomic<uint64_t> allocations[3];

// What is allocated, by place: an independent witness.
class Witness {
 public:
  void add(const Block& block) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto [at, fresh] = live_.insert({block.address, block.address + block.bytes});
    CHECK(fresh);
    if (at != live_.begin()) CHECK(std::prev(at)->second <= block.address);
    if (std::next(at) != live_.end()) CHECK(std::next(at)->first >= block.address + block.bytes);
  }
  void remove(const Block& block) {
    std::lock_guard<std::mutex> lock(mutex_);
    CHECK_EQUAL(live_.erase(block.address), size_t(1));
  }

 private:
  std::mutex mutex_;
  std::map<uintptr_t, uintptr_t> live_;
} witness;

struct Live {
  Block* block;
  Stream* stream;
  uint8_t value;
};

// A read that is under way, and what it must find.
struct Reading {
  std::vector<uint8_t> bytes;
  Stream* stream;
  uint8_t value;
};

class Worker {
 public:
  explicit Worker(unsigned seed) : random_(seed) {
    for (int d = 0; d < 3; d++) {
      own_.push_back(&device(d).streams().create(0));
      events_.push_back(std::make_unique<Event>(device(d), pick(2) == 0));
    }
  }

  void work() {
    for (int i = 0; i < kOperations; i++) {
      step();
      if (live_.size() > 30) release_one();
      if (readings_.size() > 20) finish_readings();
    }
    finish_readings();
    while (!live_.empty()) release_one();
  }

 private:
  unsigned pick(unsigned n) { return static_cast<unsigned>(random_() % n); }
  Stream& any_stream(int d) { return pick(3) == 0 ? *shared_streams[d][pick(kShared)] : *own_[static_cast<size_t>(d)]; }

  void step() {
    switch (pick(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
        allocate_one();
        break;
      case 5:
      case 6:
      case 7:
        release_one();
        break;
      case 8:
      case 9:
      case 10:
        read_one();
        break;
      case 11:
      case 12:
        read_elsewhere();
        break;
      case 13:
        order();
        break;
      case 14:
        ask();
        break;
      default:
        if (pick(50) == 0) seldom();
        break;
    }
  }

  void allocate_one() {
    int d = static_cast<int>(pick(3));
    Stream& stream = any_stream(d);
    uint64_t bytes = 1 + random_() % (1ull << (3 + pick(12)));
    if (pick(200) == 0) bytes += 1 << 20;
    Block* block = device(d).pool().allocate(bytes, stream);
    witness.add(*block);
    allocations[d] += 1;
    uint8_t value = static_cast<uint8_t>(random_());
    if (!device(d).is_inline && pick(200) == 0) delay_next(stream, 200'000);
    fill(stream, *block, value);
    live_.push_back({block, &stream, value});
  }

  void release_one() {
    if (live_.empty()) return;
    std::swap(live_[pick(static_cast<unsigned>(live_.size()))], live_.back());
    Block* block = live_.back().block;
    live_.pop_back();
    witness.remove(*block);
    block->stream->device.pool().release(block);
  }

  // In its own stream: nothing else orders.
  void read_one() {
    if (live_.empty()) return;
    const Live& live = live_[pick(static_cast<unsigned>(live_.size()))];
    start_reading(*live.stream, live);
  }

  void start_reading(Stream& stream, const Live& live) {
    readings_.push_back({std::vector<uint8_t>(live.block->requested), &stream, live.value});
    read_later(stream, *live.block, readings_.back().bytes.data());
  }

  // From another stream of its device, which an event lets wait, and the pool hears of; the block may go at once.
  void read_elsewhere() {
    if (live_.empty()) return;
    Live live = live_[pick(static_cast<unsigned>(live_.size()))];
    int d = live.stream->device.index;
    Stream& reader = any_stream(d);
    Event& event = *events_[static_cast<size_t>(d)];
    event.record(*live.stream);
    event.block(reader);
    if (!device(d).is_inline && pick(50) == 0) delay_next(reader, 200'000);
    start_reading(reader, live);
    device(d).pool().record_stream(live.block, reader);
  }

  // Joins streams of any two devices.
  void order() {
    int from = static_cast<int>(pick(3));
    int to = static_cast<int>(pick(3));
    Event& event = *events_[static_cast<size_t>(from)];
    event.record(any_stream(from));
    event.block(any_stream(to));
  }

  void ask() {
    int d = static_cast<int>(pick(3));
    any_stream(d).query();
    events_[static_cast<size_t>(d)]->query();
    if (live_.empty()) return;
    const Block& block = *live_.back().block;
    if (pick(20) == 0) CHECK(block_at(block.address + block.requested - 1) == &block);
    if (pick(20) == 0) {
      PoolStats stats = device(d).pool().stats();
      CHECK(stats.allocated_bytes <= stats.reserved_bytes && stats.requested_bytes <= stats.allocated_bytes);
      CHECK(stats.allocated_bytes + stats.waiting_bytes + stats.inactive_split_bytes <= stats.reserved_bytes);
      CHECK(stats.reserved_bytes <= stats.reserved_bytes_peak && stats.cache_hits <= stats.allocations);
    }
  }

  void seldom() {
    Device& d = device(static_cast<int>(pick(3)));
    switch (pick(5)) {
      case 0:
        d.pool().empty_cache();
        break;
      case 1:
        met_failure([&] { d.synchronize(); });
        break;
      case 2:
        d.pool().snapshot();
        break;
      case 3:
        any_stream(d.index).synchronize();
        break;
      default:
        fail_a_stream(d);
        break;
    }
  }

  // One of its own, so that the data of others is safe; others see the device's other streams at work meanwhile.
  void fail_a_stream(Device& d) {
    Stream& stream = d.streams().create(0);
    Block* block = d.pool().allocate(512, stream);
    fail_next(stream);
    try_fill(stream, *block, 1);
    d.pool().record_stream(block, *own_[static_cast<size_t>(d.index)]);
    d.pool().release(block);
    met_failure([&] { stream.synchronize(); });
    block = d.pool().allocate(512, stream);
    Live live{block, &stream, 77};
    fill(stream, *block, live.value);
    start_reading(stream, live);
    d.pool().release(block);
  }

  // A stream of fail_a_stream() fails for its own thread, or for another that waits for the whole device just then.
  template <class F>
  void met_failure(F&& wait) {
    try {
      wait();
    } catch (const Raised& error) {
      CHECK_CONTAINS(error.what(), "FL_ASYNC_FAILURE");
    }
  }

  void finish_readings() {
    for (Reading& reading : readings_) {
      reading.stream->synchronize();
      CHECK(all_equal(reading.bytes, reading.value));
    }
    readings_.clear();
  }

  std::mt19937_64 random_;
  std::vector<Stream*> own_;
  std::vector<std::unique_ptr<Event>> events_;
  std::vector<Live> live_;
  std::vector<Reading> readings_;
};

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc == 3);
  alarm(900);
  add_reference_devices(argv + 1);
  for (int d = 0; d < 3; d++) {
    for (int i = 0; i < kShared; i++) shared_streams[d][i] = &device(d).streams().create(0);
  }
  std::vector<std::thread> threads;
  std::atomic<int> escaped{0};
  for (unsigned t = 0; t < kThreads; t++) {
    threads.emplace_back([&, t] {
      try {
        Worker(t).work();
      } catch (const Raised& error) {
        std::fprintf(stderr, "thread %u: %s\n", t, error.what());
        escaped += 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQUAL(escaped.load(), 0);
  for (int d = 0; d < 3; d++) {
    device(d).synchronize();
    PoolStats stats = device(d).pool().stats();
    CHECK_EQUAL(stats.active_blocks, 0u);
    CHECK_EQUAL(stats.allocated_bytes, 0u);
    CHECK_EQUAL(stats.requested_bytes, 0u);
    CHECK(stats.allocations >= allocations[d]);
    device(d).pool().empty_cache();
    stats = device(d).pool().stats();
    CHECK_EQUAL(stats.reserved_bytes, 0u);
    CHECK_EQUAL(stats.waiting_blocks, 0u);
    uint64_t free = 0, total = 0;
    device(d).pool().info(&free, &total);
    CHECK_EQUAL(free, total);
  }
  return 0;
}
