// An account of a pool that is kept apart from its own.
#pragma once
#include <map>
#include <utility>

#include "harness.h"

namespace harness {

constexpr unsigned long long kMiB = 1ull << 20;

// No two live blocks overlap, and all lie within their segment.
inline void check_disjoint(const std::vector<Block*>& blocks) {
  std::map<std::pair<uint64_t, uint64_t>, Block*> by_place;
  for (Block* block : blocks) by_place[{block->base, block->offset}] = block;
  CHECK_EQUAL(by_place.size(), blocks.size());
  Block* before = nullptr;
  for (auto& [place, block] : by_place) {
    CHECK(block->allocated && block->offset + block->bytes <= block->base_bytes && block->requested <= block->bytes);
    if (before != nullptr && before->base == block->base) CHECK(before->offset + before->bytes <= block->offset);
    before = block;
  }
}

// Every segment is covered by its blocks without a gap, and the numbers add up.
inline void check_consistent(Device& device) {
  PoolStats stats = device.pool().stats();
  std::vector<Block> blocks = device.pool().snapshot();
  uint64_t allocated = 0, requested = 0, active = 0, reserved = 0, segments = 0, next = 0;
  for (const Block& block : blocks) {
    if (block.offset == 0) {
      reserved += block.base_bytes;
      segments += 1;
      next = 0;
    }
    CHECK_EQUAL(block.offset, next);
    next = block.offset + block.bytes;
    if (!block.allocated) continue;
    allocated += block.bytes;
    requested += block.requested;
    active += 1;
  }
  CHECK_EQUAL(stats.allocated_bytes, allocated);
  CHECK_EQUAL(stats.requested_bytes, requested);
  CHECK_EQUAL(stats.active_blocks, active);
  CHECK_EQUAL(stats.reserved_bytes, reserved);
  CHECK_EQUAL(stats.segments, segments);
  CHECK(stats.allocated_bytes_peak >= allocated && stats.reserved_bytes_peak >= reserved);
}

}  // namespace harness
