// Streams and events: order, failures that surface once, waits that can be interrupted.
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

// ---- failures -----------------------------------------------------------------------------------------------------

void poison(Stream& stream) {
  Block* block = stream.device.pool().allocate(64, stream);
  fail_next(stream);
  try_fill(stream, *block, 1);  // an INLINE device says so at once
  stream.device.pool().release(block);
}

void until_failed(Stream& stream) {
  while (stream.device.vendor.stream.query(stream.handle(), nullptr) == FL_NOT_READY) std::this_thread::yield();
}

void expect_works(Stream& stream) {
  Block* block = stream.device.pool().allocate(300, stream);
  std::vector<uint8_t> bytes(300);
  fill(stream, *block, 42);
  read_later(stream, *block, bytes.data());
  stream.synchronize();
  CHECK(all_equal(bytes, 42) && stream.query());
  stream.device.synchronize();
  stream.device.pool().release(block);
}

void check_failures(Device& device) {
  std::string name = "fl:" + std::to_string(device.index) + " (" + device.vendor.name + "): ";
  Stream& stream = device.streams().create(0);
  std::string number = std::to_string(stream.id);
  fl_stream before = stream.handle();

  poison(stream);
  std::string text = raised(ErrorClass::kRuntime, [&] { stream.synchronize(); });
  CHECK_CONTAINS(text, name + "synchronize of stream " + number + ": FL_ASYNC_FAILURE: ");
  CHECK_CONTAINS(text, "what was submitted after it did not run");
  CHECK(stream.handle() != before);
  expect_works(stream);

  poison(stream);
  until_failed(stream);
  CHECK_CONTAINS(raised(ErrorClass::kRuntime, [&] { stream.query(); }), "query of stream " + number);
  expect_works(stream);

  poison(stream);
  text = raised(ErrorClass::kRuntime, [&] { device.synchronize(); });
  CHECK_CONTAINS(text, name + "synchronize of streams " + number + ": FL_ASYNC_FAILURE: ");
  expect_works(stream);

  // Two at once, both named.
  Stream& second = device.streams().create(0);
  poison(stream);
  poison(second);
  text = raised(ErrorClass::kRuntime, [&] { device.synchronize(); });
  CHECK_CONTAINS(text, "streams " + number + ", " + std::to_string(second.id) + ": ");
  expect_works(stream);
  expect_works(second);

  // A submit that is refused raises the failure, and a wait after it raises nothing.
  poison(stream);
  until_failed(stream);
  Block* block = device.pool().allocate(64, stream);
  VendorError error;
  fl_status status =
      device.vendor.memory.fill(stream.handle(), block->base, block->offset, 0, 1, block->requested, error.out());
  CHECK_EQUAL(status, FL_ASYNC_FAILURE);
  text = raised(ErrorClass::kRuntime, [&] { check(status, error, stream, [] { return "fill of 64 bytes"; }); });
  CHECK_CONTAINS(text, name + "fill of 64 bytes: FL_ASYNC_FAILURE: ");
  device.pool().release(block);
  expect_works(stream);

  // A stream that works is never replaced: its work would lose its order.
  fl_stream working = stream.handle();
  CHECK(!stream.renew());
  raised(ErrorClass::kRuntime, [&] { check(FL_ASYNC_FAILURE, error, stream, "a submit to the handle before"); });
  CHECK(stream.handle() == working);

  // drain() takes nothing away from whoever asks.
  poison(stream);
  stream.drain();
  raised(ErrorClass::kRuntime, [&] { stream.synchronize(); });
  expect_works(stream);
}

void check_failed_events() {
  Device& d = device(0);
  Stream& stream = d.streams().create(0);
  Stream& waiting = device(1).streams().create(0);
  Event before(d, false), after(d, false), refused(d, false);
  Gate gate;
  gate.close_on(stream);
  before.record(stream);
  poison(stream);
  after.record(stream);
  after.block(waiting);
  gate.open();
  before.synchronize();
  CHECK_CONTAINS(raised(ErrorClass::kRuntime, [&] { after.synchronize(); }), "synchronize of an event: FL_ASYNC_FAILURE");
  raised(ErrorClass::kRuntime, [&] { after.query(); });  // for as long as it stands for that work
  raised(ErrorClass::kRuntime, [&] { after.block(device(2).streams().standard()); });
  raised(ErrorClass::kRuntime, [&] { waiting.synchronize(); });  // it has inherited the failure
  expect_works(waiting);
  raised(ErrorClass::kRuntime, [&] { refused.record(stream); });  // surfaces the failure
  raised(ErrorClass::kRuntime, [&] { refused.query(); });
  expect_works(stream);
  refused.record(stream);
  after.record(stream);
  after.synchronize();
  refused.synchronize();
}

// Threads that share a stream: each wait is told of the failure or runs on the new stream, and nothing is stuck.
void check_shared_failure() {
  Device& d = device(1);
  Stream& stream = d.streams().create(0);
  for (int round = 0; round < 50; round++) {
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    poison(stream);
    for (int t = 0; t < 4; t++) {
      threads.emplace_back([&] {
        try {
          stream.synchronize();
        } catch (const Raised&) {
          failures += 1;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(failures >= 1);
    expect_works(stream);
  }
}

void check_device_lost(Device& d) {
  Stream& stream = d.streams().create(0);
  Block* block = d.pool().allocate(64, stream);
  fail_next(stream, FL_DEVICE_LOST);
  try_fill(stream, *block, 0);
  std::string text = raised(ErrorClass::kRuntime, [&] { stream.synchronize(); });
  CHECK_CONTAINS(text, "FL_DEVICE_LOST");
  CHECK_CONTAINS(text, "start a new one");
  for (int i = 0; i < 2; i++) {
    raised(ErrorClass::kRuntime, [&] { stream.synchronize(); });
    raised(ErrorClass::kRuntime, [&] { stream.query(); });
    raised(ErrorClass::kRuntime, [&] { d.synchronize(); });
    raised(ErrorClass::kRuntime, [&] { d.pool().allocate(30 << 20, stream); });
  }
  d.pool().record_stream(block, d.streams().standard());
  d.pool().release(block);
  d.pool().empty_cache();
  CHECK_EQUAL(d.pool().stats().reserved_bytes, 0u);
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
  for (int i = 0; i < 3; i++) check_failures(device(i));
  check_failed_events();
  check_shared_failure();
  check_device_lost(device(1));
  expect_works(device(0).streams().standard());
  return 0;
}
