// The pool of one device, from one thread: sizes, cutting and joining, numbers, addresses.
#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "core/size_class.h"
#include "pool_account.h"

using namespace harness;

namespace {

void check_size_classes() {
  for (uint64_t n = 1; n < 70000; n++) {
    uint32_t below = class_below(n);
    CHECK(class_granules(below) <= n && class_granules(below + 1) > n);
    CHECK(class_granules(below + 1) * 4 <= n * 5 + 4);  // a quarter is the most that a class lies above the last
  }
  CHECK(class_below(1ull << 42) < kSizeClasses - 1);
}

void check_alignment(Device& device) {
  Stream& stream = current_stream(device);
  uint64_t granule = std::max<uint64_t>(kGranule, device.info.alloc_align);
  std::vector<Block*> blocks;
  for (uint64_t bytes : {1ull, 63ull, 64ull, 65ull, 4095ull, 4097ull, 100000ull, kMiB, kMiB + 1, 3 * kMiB + 7}) {
    Block* block = device.pool().allocate(bytes, stream);
    CHECK(block->base != 0 && block->offset % granule == 0 && block->requested == bytes && block->bytes >= bytes);
    CHECK_EQUAL((block->base + block->offset) % 65536, block->address % 65536);
    CHECK(block->stream == &stream);
    blocks.push_back(block);
  }
  check_disjoint(blocks);
  for (Block* block : blocks) device.pool().release(block);
  raised(ErrorClass::kValue, [&] { device.pool().allocate(0, stream); });
}

void check_reuse(Device& device) {
  Pool& pool = device.pool();
  Stream& stream = current_stream(device);
  Stream& other = device.streams().create(0);
  pool.empty_cache();
  PoolStats before = pool.stats();
  CHECK_EQUAL(before.reserved_bytes, 0u);

  Block* small = pool.allocate(1000, stream);
  uint64_t place = small->offset;
  pool.release(small);
  for (int i = 0; i < 2; i++) {
    Block* elsewhere = pool.allocate(1000, other);  // never a block of another stream, known to the pool or not
    CHECK(elsewhere->base != small->base && elsewhere->stream == &other);
    pool.release(elsewhere);
  }
  Block* again = pool.allocate(1001, stream);  // of the same class
  CHECK_EQUAL(again->offset, place);
  pool.release(again);
  pool.empty_cache();

  // Small blocks in all sizes, released, are one piece again when one of another size needs them.
  std::vector<Block*> blocks;
  while (pool.stats().segments < 2) blocks.push_back(pool.allocate(20000 + 100 * blocks.size(), stream));
  uint64_t reserved = pool.stats().reserved_bytes;
  CHECK_EQUAL(reserved, 4 * kMiB);
  for (Block* block : blocks) pool.release(block);
  blocks.clear();
  for (int i = 0; i < 3; i++) blocks.push_back(pool.allocate(kMiB, stream));  // the first cuts the second segment
  CHECK_EQUAL(pool.stats().reserved_bytes, reserved);
  for (Block* block : blocks) pool.release(block);

  // Large ones: the best fit is taken and cut, and joined again. 24 MiB is more than any shared segment.
  Block* a = pool.allocate(24 * kMiB, stream);
  Block* b = pool.allocate(12 * kMiB, stream);
  pool.release(a);
  pool.release(b);
  Block* c = pool.allocate(11 * kMiB, stream);
  CHECK_EQUAL(c->base, b->base);
  Block* d = pool.allocate(10 * kMiB, stream);
  Block* e = pool.allocate(14 * kMiB, stream);
  CHECK(d->base == a->base && e->base == a->base);
  check_disjoint({c, d, e});
  check_consistent(device);
  pool.release(d);
  pool.release(e);
  a = pool.allocate(24 * kMiB, stream);
  CHECK(a->offset == 0 && a->bytes == 24 * kMiB);
  pool.release(a);
  pool.release(c);
  check_consistent(device);
  pool.empty_cache();
  CHECK_EQUAL(pool.stats().reserved_bytes, 0u);
  CHECK_EQUAL(pool.stats().segments, 0u);
}

void check_stats(Device& device) {
  Pool& pool = device.pool();
  Stream& stream = current_stream(device);
  pool.empty_cache();
  pool.reset_peaks();
  PoolStats start = pool.stats();
  uint64_t granule = std::max<uint64_t>(kGranule, device.info.alloc_align);
  Block* a = pool.allocate(granule, stream);
  Block* b = pool.allocate(2 * granule - 1, stream);
  PoolStats two = pool.stats();
  CHECK_EQUAL(two.allocated_bytes, 3 * granule);
  CHECK_EQUAL(two.requested_bytes, 3 * granule - 1);
  CHECK_EQUAL(two.active_blocks, 2u);
  CHECK_EQUAL(two.allocations - start.allocations, 2u);
  CHECK_EQUAL(two.cache_hits - start.cache_hits, 1u);
  CHECK_EQUAL(two.segments, 1u);
  CHECK_EQUAL(two.inactive_split_bytes, two.reserved_bytes - 3 * granule);
  CHECK_EQUAL(two.inactive_split_blocks, 1u);
  PoolStats totals = pool.totals();  // all but what a walk finds
  CHECK_EQUAL(totals.inactive_split_bytes + totals.inactive_split_blocks + totals.waiting_bytes, 0u);
  totals.inactive_split_bytes = two.inactive_split_bytes;
  totals.inactive_split_blocks = two.inactive_split_blocks;
  CHECK(std::memcmp(&totals, &two, sizeof two) == 0);
  pool.release(a);
  PoolStats one = pool.stats();
  CHECK_EQUAL(one.allocated_bytes, 2 * granule);
  CHECK_EQUAL(one.allocated_bytes_peak, 3 * granule);
  CHECK_EQUAL(one.active_blocks_peak, 2u);
  CHECK_EQUAL(one.inactive_split_bytes, one.reserved_bytes - 2 * granule);
  CHECK_EQUAL(one.inactive_split_blocks, 2u);
  pool.reset_peaks();
  CHECK_EQUAL(pool.stats().allocated_bytes_peak, 2 * granule);
  CHECK_EQUAL(pool.stats().requested_bytes_peak, 2 * granule - 1);
  pool.release(b);
  CHECK_EQUAL(pool.stats().inactive_split_bytes, 0u);  // the segment is wholly free now
  pool.empty_cache();
  PoolStats end = pool.stats();
  CHECK_EQUAL(end.reserved_bytes, 0u);
  CHECK_EQUAL(end.reserved_bytes_peak, two.reserved_bytes);
  CHECK_EQUAL(end.reserved_bytes_total - start.reserved_bytes_total, two.reserved_bytes);
  CHECK_EQUAL(end.allocated_bytes_total - start.allocated_bytes_total, 3 * granule);
}

void check_addresses() {
  std::vector<Block*> blocks;
  std::map<uintptr_t, uintptr_t> ranges;
  for (Device* device : device_list) {
    if (device == nullptr) continue;
    for (uint64_t bytes : {100ull, 3 * kMiB, 70000ull}) {
      Block* block = device->pool().allocate(bytes, current_stream(*device));
      blocks.push_back(block);
      ranges[block->address] = block->address + block->bytes;
      CHECK(block_at(block->address) == block && block_at(block->address + block->bytes - 1) == block);
      CHECK(block_at(block->address + block->bytes) != block && block_at(block->address - 1) != block);
      if (device->info.address_model == FL_ADDRESS_LINEAR) CHECK_EQUAL(block->address, block->base + block->offset);
    }
  }
  uintptr_t end = 0;
  for (auto& [from, to] : ranges) {
    CHECK(from >= end);
    end = to;
  }
  for (Block* block : blocks) {
    uintptr_t address = block->address;
    block->stream->device.pool().release(block);
    CHECK(block_at(address) == nullptr);  // free
  }
  CHECK(block_at(0) == nullptr && block_at(reinterpret_cast<uintptr_t>(&end)) == nullptr);
  for (Device* device : device_list) {
    if (device != nullptr) device->pool().empty_cache();
  }
  for (auto& [from, to] : ranges) CHECK(block_at(from) == nullptr);  // given back
}

// A long random history against a plain account of what is allocated.
void check_random_history(Device& device) {
  Pool& pool = device.pool();
  std::mt19937 random(device.index);
  std::vector<Stream*> streams = {&current_stream(device), &device.streams().create(0), &device.streams().create(0)};
  std::vector<Block*> live;
  uint64_t requested = 0;
  for (int step = 0; step < 30000; step++) {
    bool grow = live.size() < 40 || (live.size() < 200 && random() % 2 == 0);
    if (grow) {
      uint64_t bytes = 1 + random() % (1ull << (4 + random() % 18));
      Block* block = pool.allocate(bytes, *streams[random() % streams.size()]);
      requested += bytes;
      live.push_back(block);
    } else {
      std::swap(live[random() % live.size()], live.back());
      requested -= live.back()->requested;
      pool.release(live.back());
      live.pop_back();
    }
    if (step % 1000 == 0) {
      check_disjoint(live);
      check_consistent(device);
      CHECK_EQUAL(pool.stats().requested_bytes, requested);
      if (step % 5000 == 0) pool.empty_cache();
    }
  }
  for (Block* block : live) pool.release(block);
  check_consistent(device);
  pool.empty_cache();
  CHECK_EQUAL(pool.stats().reserved_bytes, 0u);
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc == 3);
  alarm(300);
  check_size_classes();
  add_reference_devices(argv + 1);
  for (int i = 0; i < device_count(); i++) {
    check_alignment(device(i));
    check_reuse(device(i));
    check_stats(device(i));
    check_random_history(device(i));
  }
  check_addresses();
  return 0;
}
