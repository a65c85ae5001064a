// Streams and events: who they are, their order, waits that end and that can be interrupted.
#include <atomic>
#include <chrono>
#include <set>

#include "harness.h"

using namespace harness;

namespace {

struct Interrupted {};
std::atomic<int> signals{0};
void interrupt() { throw Interrupted(); }
void count_signals() { signals += 1; }

// Whether f() is left by what check_signals throws.
template <class F>
bool interrupted(F&& f) {
  check_signals = interrupt;
  bool thrown = false;
  try {
    f();
  } catch (const Interrupted&) {
    thrown = true;
  }
  check_signals = nullptr;
  return thrown;
}

void check_current() {
  CHECK_EQUAL(current_device(), 0);
  CHECK_EQUAL(exchange_device(-1), 0);
  CHECK_EQUAL(exchange_device(2), 0);
  CHECK_EQUAL(current_device(), 2);
  set_current_device(1);
  CHECK_CONTAINS(raised(ErrorClass::kRuntime, [] { set_current_device(3); }),
                 "fl:3 does not exist: this process has 3 devices, fl:0 to fl:2");
  raised(ErrorClass::kRuntime, [] { exchange_device(-2); });
  CHECK_EQUAL(current_device(), 1);
  Stream& made = device(0).streams().create(0);
  set_current_stream(made);
  CHECK(&current_stream(device(0)) == &made && current_device() == 1);
  CHECK(&current_stream(device(1)) == &device(1).streams().standard());
  std::thread([&] {
    CHECK_EQUAL(current_device(), 0);
    CHECK(&current_stream(device(0)) == &device(0).streams().standard());
  }).join();
  set_current_stream(device(0).streams().standard());
  set_current_device(0);
}

// Threads that ask at once for what nobody has asked for before.
void check_first_use() {
  std::vector<std::thread> threads;
  std::atomic<int> ready{0};
  std::mutex mutex;
  std::set<Stream*> standard, pooled;
  for (int t = 0; t < 8; t++) {
    threads.emplace_back([&] {
      ready += 1;
      while (ready < 8) std::this_thread::yield();
      Stream& first = device(0).streams().standard();
      std::vector<Stream*> mine;
      for (int i = 0; i < 20; i++) mine.push_back(&device(0).streams().from_pool(0));
      std::lock_guard<std::mutex> lock(mutex);
      standard.insert(&first);
      pooled.insert(mine.begin(), mine.end());
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQUAL(standard.size(), size_t(1));
  CHECK_EQUAL(pooled.size(), static_cast<size_t>(StreamSet::kPooled));
  CHECK_EQUAL(device(0).streams().all().size(), static_cast<size_t>(StreamSet::kPooled) + 1);
  CHECK_EQUAL((*standard.begin())->id, 0);
}

void check_stream_set() {
  StreamSet& streams = device(0).streams();
  CHECK_EQUAL(streams.standard().id, 0);
  CHECK(&streams.by_id(0) == &streams.standard());
  CHECK_CONTAINS(raised(ErrorClass::kRuntime, [&] { streams.by_id(10000); }), "fl:0 has no stream 10000");
  raised(ErrorClass::kRuntime, [&] { streams.by_id(-1); });
  std::set<Stream*> pooled;
  for (int i = 0; i < StreamSet::kPooled; i++) pooled.insert(&streams.from_pool(-1));
  CHECK_EQUAL(pooled.size(), static_cast<size_t>(StreamSet::kPooled));
  for (int i = 0; i < StreamSet::kPooled; i++) CHECK(pooled.count(&streams.from_pool(-100)) == 1);  // clamped, in turn
  CHECK(pooled.count(&streams.from_pool(0)) == 0);
  CHECK_EQUAL((*pooled.begin())->priority, -1);
  std::string text = raised(ErrorClass::kRuntime, [&] { streams.create(7); });
  CHECK_CONTAINS(text, "fl:0 (reference): stream_create with priority 7: FL_INVALID_ARGUMENT: priority 7 is outside");
  Stream& fresh = streams.create(1);
  CHECK(&streams.by_id(fresh.id) == &fresh && fresh.priority == 1);
  size_t seen = 0;
  streams.for_each([&](Stream& stream) { CHECK_EQUAL(stream.id, static_cast<int64_t>(seen++)); });
  CHECK_EQUAL(seen, streams.all().size());
}

void check_waits() {
  Stream& stream = device(0).streams().create(0);
  CHECK(stream.query());
  stream.synchronize();
  Gate gate;
  gate.close_on(stream);
  CHECK(!stream.query());
  CHECK(interrupted([&] { stream.synchronize(); }));
  CHECK(interrupted([&] { device(0).synchronize(); }));
  CHECK(interrupted([&] { stream.drain(); }));
  Event event(device(0), false);
  event.record(stream);
  CHECK(!event.query());
  CHECK(interrupted([&] { event.synchronize(); }));
  CHECK(!stream.query());  // nothing of that has let anything through
  std::thread opener([&] {
    while (signals < 4) std::this_thread::yield();
    gate.open();
  });
  check_signals = count_signals;
  stream.synchronize();  // goes on after each slice
  check_signals = nullptr;
  opener.join();
  CHECK(event.query() && stream.query());
  device(0).synchronize();
}

// A wait ends with what was submitted before it, however fast another thread submits more.
void check_wait_ends() {
  Stream& stream = device(0).streams().create(0);
  Block* block = device(0).pool().allocate(64, stream);
  std::atomic<bool> stop{false};
  std::atomic<int> submitted{0};
  std::thread submitter([&] {
    // 40 operations are 200 ms of work, four slices; from then on the stream gets more than it gets done.
    for (; !stop; submitted++) {
      delay_next(stream, 5'000'000);
      fill(stream, *block, 1);
      if (submitted >= 40) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
  });
  while (submitted < 40) std::this_thread::yield();
  stream.synchronize();
  device(0).synchronize();
  CHECK(!stream.query());
  stop = true;
  submitter.join();
  stream.synchronize();
  device(0).pool().release(block);
}

void check_event_order() {
  // Across the devices of one vendor: the second stream is not let on before the first is.
  Stream& first = device(0).streams().create(0);
  Stream& second = device(1).streams().create(0);
  Event event(device(0), false);
  event.block(second);  // never recorded: no wait
  CHECK(event.query());
  event.synchronize();
  uint64_t waits = host_waits();
  Gate gate;
  gate.close_on(first);
  event.record(first);
  event.block(second);
  Block* block = device(1).pool().allocate(256, second);
  fill(second, *block, 7);
  std::vector<uint8_t> bytes(256);
  read_later(second, *block, bytes.data());
  CHECK(!second.query() && !event.query());
  CHECK_EQUAL(host_waits(), waits);
  gate.open();
  second.synchronize();
  CHECK(all_equal(bytes, 7));
  device(1).pool().release(block);
  CHECK_CONTAINS(raised(ErrorClass::kRuntime, [&] { event.record(second); }),
                 "an event of fl:0 cannot be recorded on a stream of fl:1");
}

void check_cross_vendor() {
  Stream& first = device(0).streams().create(0);
  Stream& foreign = device(2).streams().standard();
  Event event(device(0), false);
  event.record(first);
  first.synchronize();
  uint64_t waits = host_waits();
  event.block(foreign);
  CHECK_EQUAL(host_waits(), waits);  // complete: nothing to wait for
  Gate gate;
  gate.close_on(first);
  event.record(first);
  CHECK(interrupted([&] { event.block(foreign); }));
  CHECK_EQUAL(host_waits(), waits + 1);
  std::atomic<bool> opened{false};
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    opened = true;
    gate.open();
  });
  event.block(foreign);
  CHECK(opened);
  CHECK_EQUAL(host_waits(), waits + 2);
  opener.join();
  Event on_inline(device(2), false);
  on_inline.record(foreign);
  on_inline.block(first);
  CHECK_EQUAL(host_waits(), waits + 2);
}

void check_elapsed() {
  Stream& stream = device(0).streams().create(0);
  Event start(device(0), true), end(device(0), true), plain(device(0), false), elsewhere(device(1), true);
  CHECK_CONTAINS(raised(ErrorClass::kRuntime, [&] { start.elapsed_ms(end); }), "never recorded");
  start.record(stream);
  Block* block = device(0).pool().allocate(64, stream);
  delay_next(stream, 20'000'000);
  fill(stream, *block, 0);
  end.record(stream);
  plain.record(stream);
  stream.synchronize();
  CHECK(start.elapsed_ms(end) >= 20.0);
  CHECK_CONTAINS(raised(ErrorClass::kRuntime, [&] { start.elapsed_ms(plain); }), "without timing");
  CHECK_CONTAINS(raised(ErrorClass::kRuntime, [&] { start.elapsed_ms(elsewhere); }), "of one device");
  Gate gate;
  gate.close_on(stream);
  end.record(stream);
  CHECK_CONTAINS(raised(ErrorClass::kRuntime, [&] { start.elapsed_ms(end); }), "pending");
  gate.open();
  device(0).pool().release(block);
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc == 3);
  alarm(300);
  add_reference_devices(argv + 1);
  check_first_use();
  check_current();
  check_stream_set();
  check_waits();
  check_wait_ends();
  check_event_order();
  check_cross_vendor();
  check_elapsed();
  return 0;
}
