// Failures of asynchronous work: each surfaces once, at whoever asks first, and its stream works on.
#include <atomic>

#include "harness.h"

using namespace harness;

namespace {

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
  CHECK_CONTAINS(raised(ErrorClass::kRuntime, [&] { after.synchronize(); }),
                 "synchronize of an event: FL_ASYNC_FAILURE");
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
  for (int i = 0; i < 3; i++) check_failures(device(i));
  check_failed_events();
  check_shared_failure();
  check_device_lost(device(1));
  expect_works(device(0).streams().standard());
  return 0;
}
