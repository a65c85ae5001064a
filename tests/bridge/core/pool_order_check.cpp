// The pool among streams: reuse in stream order, further streams of a block, memory given back when nobody uses it.
#include <atomic>
#include <chrono>

#include "harness.h"

using namespace harness;

namespace {

constexpr uint64_t kBytes = 5000;

// Allocate, write, read and release ahead of the device: with FIFO order each read still sees its own pattern.
void check_reuse_in_stream_order() {
  Device& d = device(0);
  Stream& stream = d.streams().create(0);
  Gate gate;
  gate.close_on(stream);
  std::vector<std::vector<uint8_t>> reads(50, std::vector<uint8_t>(kBytes));
  uint64_t place = 0;
  for (size_t i = 0; i < reads.size(); i++) {
    Block* block = d.pool().allocate(kBytes, stream);
    if (i == 0) place = block->address;
    CHECK_EQUAL(block->address, place);  // at once, although the device has not even begun
    fill(stream, *block, static_cast<uint8_t>(i));
    read_later(stream, *block, reads[i].data());
    d.pool().release(block);
  }
  gate.open();
  stream.synchronize();
  for (size_t i = 0; i < reads.size(); i++) CHECK(all_equal(reads[i], static_cast<uint8_t>(i)));
}

// A block that another stream reads is not handed out before that stream has done with it.
void check_record_stream(Device& reader_device) {
  Device& d = device(0);
  d.pool().empty_cache();
  Stream& owner = d.streams().create(0);
  Stream& reader = reader_device.streams().create(0);
  Stream& second = d.streams().create(0);

  Block* block = d.pool().allocate(kBytes, owner);
  uint64_t place = block->address;
  Gate gate, second_gate;
  gate.close_on(reader);
  second_gate.close_on(second);
  d.pool().record_stream(block, reader);
  d.pool().record_stream(block, reader);  // once is enough
  d.pool().record_stream(block, second);
  d.pool().record_stream(block, owner);  // known already
  d.pool().release(block);
  PoolStats stats = d.pool().stats();
  CHECK_EQUAL(stats.waiting_blocks, 1u);
  CHECK(stats.waiting_bytes >= kBytes);
  CHECK_EQUAL(stats.active_blocks, 0u);
  CHECK_EQUAL(stats.allocated_bytes, 0u);

  // All the rest of the segment, and then some, without meeting it.
  std::vector<Block*> blocks;
  for (int i = 0; i < 500; i++) {
    blocks.push_back(d.pool().allocate(kBytes, owner));
    CHECK(blocks.back()->address != place);
  }
  gate.open();
  reader.synchronize();
  uint64_t segments = d.pool().stats().segments;
  while (d.pool().stats().segments == segments) {  // it is looked for, but the second stream is not done
    blocks.push_back(d.pool().allocate(kBytes, owner));
    CHECK(blocks.back()->address != place);
  }
  CHECK_EQUAL(d.pool().stats().waiting_blocks, 1u);
  for (Block* other : blocks) d.pool().release(other);
  blocks.clear();
  second_gate.open();
  second.synchronize();

  // It is found again when an allocation would otherwise need more memory.
  uint64_t reserved = d.pool().stats().reserved_bytes;
  bool met = false;
  for (int i = 0; i < 2000 && !met; i++) {
    blocks.push_back(d.pool().allocate(kBytes, owner));
    met = blocks.back()->address == place;
  }
  CHECK(met);
  CHECK_EQUAL(d.pool().stats().reserved_bytes, reserved);
  CHECK_EQUAL(d.pool().stats().waiting_blocks, 0u);
  for (Block* other : blocks) d.pool().release(other);
  d.pool().empty_cache();
  CHECK_EQUAL(d.pool().stats().reserved_bytes, 0u);
}

// The reader is slow; the owner writes what it gets at once. The reader must see what was there before.
void check_record_stream_saves_data() {
  Device& d = device(0);
  Stream& owner = d.streams().create(0);
  Stream& reader = d.streams().create(0);
  Event written(d, false);
  for (uint8_t round = 1; round < 20; round++) {
    Block* block = d.pool().allocate(kBytes, owner);
    fill(owner, *block, round);
    written.record(owner);
    written.block(reader);
    delay_next(reader, 2'000'000);
    std::vector<uint8_t> read(kBytes);
    read_later(reader, *block, read.data());
    d.pool().record_stream(block, reader);
    d.pool().release(block);
    Block* next = d.pool().allocate(kBytes, owner);
    fill(owner, *next, 0xee);
    owner.synchronize();
    reader.synchronize();
    CHECK(all_equal(read, round));
    d.pool().release(next);
  }
}

// empty_cache() keeps the memory until the streams that use it are done.
void check_empty_cache_waits() {
  Device& d = device(0);
  d.pool().empty_cache();
  Stream& owner = d.streams().create(0);
  Stream& reader = device(1).streams().create(0);
  std::vector<uint8_t> own(kBytes), foreign(kBytes);
  Block* block = d.pool().allocate(kBytes, owner);
  fill(owner, *block, 9);
  owner.synchronize();

  delay_next(owner, 80'000'000);  // longer than a slice
  read_later(owner, *block, own.data());
  d.pool().release(block);
  d.pool().empty_cache();  // or the copy would read what is not there any more
  CHECK_EQUAL(d.pool().stats().reserved_bytes, 0u);
  owner.synchronize();
  CHECK(all_equal(own, 9));

  block = d.pool().allocate(kBytes, owner);
  fill(owner, *block, 11);
  owner.synchronize();
  delay_next(reader, 80'000'000);
  Block* copy = device(1).pool().allocate(kBytes, reader);
  copy_between(reader, *copy, *block);  // the reader is of device 1, the memory of device 0
  read_later(reader, *copy, foreign.data());
  d.pool().record_stream(block, reader);
  d.pool().release(block);
  d.pool().empty_cache();
  CHECK_EQUAL(d.pool().stats().reserved_bytes, 0u);
  reader.synchronize();
  CHECK(all_equal(foreign, 11));
  device(1).pool().release(copy);
}

struct Interrupted {};

// An interrupted empty_cache() leaves the pool as it was.
void check_empty_cache_interrupted() {
  Device& d = device(0);
  Stream& owner = d.streams().create(0);
  Stream& reader = d.streams().create(0);
  for (Stream* gated : {&owner, &reader}) {
    Block* block = d.pool().allocate(kBytes, owner);
    d.pool().record_stream(block, reader);
    Gate gate;
    gate.close_on(*gated);
    d.pool().release(block);
    PoolStats before = d.pool().stats();
    check_signals = [] { throw Interrupted(); };
    bool thrown = false;
    try {
      d.pool().empty_cache();
    } catch (const Interrupted&) {
      thrown = true;
    }
    check_signals = nullptr;
    CHECK(thrown);
    CHECK_EQUAL(d.pool().stats().reserved_bytes, before.reserved_bytes);
    gate.open();
    d.synchronize();
    block = d.pool().allocate(kBytes, owner);
    d.pool().release(block);
    CHECK_EQUAL(d.pool().stats().reserved_bytes, before.reserved_bytes);
    d.pool().empty_cache();
    CHECK_EQUAL(d.pool().stats().reserved_bytes, 0u);
    CHECK_EQUAL(d.pool().stats().waiting_blocks, 0u);
  }
}

// Memory runs out while all of it waits for a reader: the allocation waits for the reader, and gets it.
void check_out_of_memory_waits_for_readers() {
  Device& d = device(0);
  Stream& owner = d.streams().create(0);
  Stream& reader = d.streams().create(0);
  Block* block = d.pool().allocate(100 << 20, owner);
  delay_next(reader, 60'000'000);
  fill(reader, *block, 3);
  d.pool().record_stream(block, reader);
  d.pool().release(block);
  PoolStats before = d.pool().stats();
  block = d.pool().allocate(100 << 20, owner);
  CHECK_EQUAL(d.pool().stats().retries, before.retries + 1);
  CHECK(reader.query());
  d.pool().release(block);
  d.pool().empty_cache();
}

// The same where only a part of the segment is free then.
void check_out_of_memory_uses_parts() {
  Device& d = device(0);
  Stream& owner = d.streams().create(0);
  Stream& reader = d.streams().create(0);
  d.pool().release(d.pool().allocate(100 << 20, owner));
  Block* kept = d.pool().allocate(50 << 20, owner);
  Block* read = d.pool().allocate(50 << 20, owner);
  delay_next(reader, 60'000'000);
  fill(reader, *read, 3);
  d.pool().record_stream(read, reader);
  d.pool().release(read);
  Block* again = d.pool().allocate(50 << 20, owner);
  CHECK(reader.query() && again->base == kept->base);
  d.pool().release(again);
  d.pool().release(kept);
  d.pool().empty_cache();
}

// Two threads at once: the second sees what the first one frees, and does not take memory that is waited for as lost.
void check_flushes_take_turns() {
  Device& d = device(0);
  Stream& owner = d.streams().create(0);
  Stream& reader = d.streams().create(0);
  static std::atomic<int> polite{0};
  blocking = [](void (*wait)(void*), void* argument) {
    polite += 1;
    wait(argument);
  };
  for (int round = 0; round < 3; round++) {
    Block* block = d.pool().allocate(100 << 20, owner);
    Gate gate;
    gate.close_on(reader);
    d.pool().record_stream(block, reader);
    d.pool().release(block);
    std::thread first([&] { d.pool().empty_cache(); });
    std::thread opener([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      gate.open();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // for the first to be in the midst of it
    block = d.pool().allocate(100 << 20, owner);
    first.join();
    opener.join();
    d.pool().release(block);
    d.pool().empty_cache();
  }
  CHECK(polite > 0);
  blocking = nullptr;
}

// Blocks of a stream that has failed are used on by its successor, and those it was to read are free.
void check_failed_streams() {
  Device& d = device(0);
  Stream& owner = d.streams().create(0);
  Stream& reader = d.streams().create(0);
  for (int round = 0; round < 20; round++) {
    Block* block = d.pool().allocate(kBytes, owner);
    fail_next(reader);
    try_fill(reader, *block, 1);
    d.pool().record_stream(block, reader);
    d.pool().release(block);
    if (round % 2 == 0) raised(ErrorClass::kRuntime, [&] { reader.synchronize(); });
    d.pool().empty_cache();
    CHECK_EQUAL(d.pool().stats().reserved_bytes, 0u);
    if (round % 2 == 1) raised(ErrorClass::kRuntime, [&] { reader.synchronize(); });

    block = d.pool().allocate(kBytes, owner);
    fail_next(owner);
    try_fill(owner, *block, 2);
    d.pool().release(block);
    raised(ErrorClass::kRuntime, [&] { owner.synchronize(); });
    block = d.pool().allocate(kBytes, owner);
    std::vector<uint8_t> read(kBytes);
    fill(owner, *block, 3);
    read_later(owner, *block, read.data());
    owner.synchronize();
    CHECK(all_equal(read, 3));
    d.pool().release(block);
    d.pool().empty_cache();
  }
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc == 3);
  alarm(300);
  add_reference_devices(argv + 1);
  check_reuse_in_stream_order();
  check_record_stream(device(0));
  check_record_stream(device(1));
  check_record_stream_saves_data();
  check_empty_cache_waits();
  check_empty_cache_interrupted();
  check_out_of_memory_waits_for_readers();
  check_out_of_memory_uses_parts();
  check_flushes_take_turns();
  check_failed_streams();
  return 0;
}
