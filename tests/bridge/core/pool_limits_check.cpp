// What a pool does where memory ends: the device's, the fraction's, a tiny device's.
#include "pool_account.h"

using namespace harness;

namespace {

void check_out_of_memory(Device& device) {
  Pool& pool = device.pool();
  Stream& stream = current_stream(device);
  pool.empty_cache();
  uint64_t free_before = 0, free_after = 0, total = 0;
  pool.info(&free_before, &total);
  CHECK_EQUAL(total, 128 * kMiB);
  PoolStats before = pool.stats();

  // What is cached in another stream's name is given back for a request that needs it.
  Stream& other = device.streams().create(0);
  pool.release(pool.allocate(100 * kMiB, other));
  Block* big = pool.allocate(90 * kMiB, stream);
  CHECK_EQUAL(pool.stats().retries - before.retries, 1u);
  CHECK_EQUAL(pool.stats().reserved_bytes, 90 * kMiB);

  std::string text = raised(ErrorClass::kOutOfMemory, [&] { pool.allocate(60 * kMiB, stream); });
  CHECK_CONTAINS(text, "fl:" + std::to_string(device.index) + " (" + device.vendor.name + ") is out of memory");
  CHECK_CONTAINS(text, "tried to allocate 60.00 MiB");
  CHECK_CONTAINS(text, "Of 128.00 MiB");
  CHECK_CONTAINS(text, "allocated 90.00 MiB in 1 blocks and reserved 90.00 MiB");
  CHECK_CONTAINS(text, "in one piece");  // the vendor's words
  CHECK_EQUAL(pool.stats().out_of_memory - before.out_of_memory, 1u);
  raised(ErrorClass::kOutOfMemory, [&] { pool.allocate(UINT64_MAX, stream); });
  raised(ErrorClass::kOutOfMemory, [&] { pool.allocate(UINT64_MAX / 2, stream); });

  // Small requests are served to the last byte, and all of it comes back.
  std::vector<Block*> blocks;
  text.clear();
  while (text.empty()) {
    try {
      blocks.push_back(pool.allocate(64 * 1024, stream));
    } catch (const Raised& error) {
      CHECK(error.error_class == ErrorClass::kOutOfMemory);
      text = error.what();
    }
  }
  CHECK(pool.stats().allocated_bytes > 127 * kMiB);
  check_disjoint(blocks);
  check_consistent(device);
  for (Block* block : blocks) pool.release(block);
  pool.release(big);
  pool.empty_cache();
  pool.info(&free_after, &total);
  CHECK_EQUAL(free_after, free_before);
}

// A device smaller than the segments that others share one from.
void check_tiny_device(Vendor& vendor) {
  Device& tiny = add_device(vendor, 1, "memory=1M");
  Stream& stream = current_stream(tiny);
  std::vector<Block*> blocks;
  try {
    for (;;) blocks.push_back(tiny.pool().allocate(4096, stream));
  } catch (const Raised& error) {
    CHECK(error.error_class == ErrorClass::kOutOfMemory);
  }
  CHECK(blocks.size() >= 200);
  check_disjoint(blocks);
  check_consistent(tiny);
  for (Block* block : blocks) tiny.pool().release(block);
  tiny.pool().release(tiny.pool().allocate(900 << 10, stream));
  tiny.pool().empty_cache();
}

void check_fraction(Device& device) {
  Pool& pool = device.pool();
  Stream& stream = current_stream(device);
  for (double part : {0.0, -0.5, 1.5, 0.0 / 0.0}) {
    CHECK_CONTAINS(raised(ErrorClass::kValue, [&] { pool.set_memory_fraction(part); }), "outside (0, 1]");
  }
  pool.set_memory_fraction(0.25);
  Block* block = pool.allocate(20 * kMiB, stream);
  std::string text = raised(ErrorClass::kOutOfMemory, [&] { pool.allocate(13 * kMiB, stream); });
  CHECK_CONTAINS(text, "The memory fraction allows it 32.00 MiB");
  CHECK_CONTAINS(text, "allow a larger memory fraction");
  Block* rest = pool.allocate(12 * kMiB, stream);
  CHECK_EQUAL(pool.stats().reserved_bytes, 32 * kMiB);
  pool.release(rest);
  pool.release(block);
  block = pool.allocate(30 * kMiB, stream);  // in place of what is cached
  pool.release(block);
  pool.set_memory_fraction(1.0);
  pool.release(pool.allocate(40 * kMiB, stream));
  pool.empty_cache();
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc == 3);
  alarm(300);
  add_reference_devices(argv + 1);
  for (int i = 0; i < 3; i++) {
    check_out_of_memory(device(i));
    check_fraction(device(i));
  }
  check_tiny_device(add_vendor_at(argv[2]));
  return 0;
}
