// The host-owned caching pool of one device: every tensor's memory comes from here.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "stream.h"

namespace torch_fl {

struct PoolState;
struct Segment;  // one mem_alloc

constexpr uint64_t kGranule = 64;  // bytes; a device with a larger alloc_align has that as its granule

// A piece of a segment. (base, offset, bytes) is what a vendor gets to see; `address` is what torch sees.
struct Block {
  uint64_t base;        // value of mem_alloc
  uint64_t offset;      // bytes from base; a multiple of kGranule and of the device's alloc_align
  uint64_t bytes;       // >= requested
  uint64_t requested;   // bytes asked for: the bound of every access
  uint64_t base_bytes;  // size of the whole segment
  uintptr_t address;    // unique in the process: base + offset of a LINEAR device whose range is free, else a token
  Stream* stream;       // the one it was allocated for
  Segment* segment;
  // The pool's own.
  Block* previous;  // its neighbours in the segment
  Block* next;
  void* bookkeeping;
  bool allocated;
};

// Bytes and counts, as torch.cuda.memory_stats names them: what is now, the most there was since reset_peaks(), and the
// sum of all that was ever added.
struct PoolStats {
  uint64_t allocated_bytes, allocated_bytes_peak, allocated_bytes_total;
  uint64_t requested_bytes, requested_bytes_peak, requested_bytes_total;
  uint64_t reserved_bytes, reserved_bytes_peak, reserved_bytes_total;
  uint64_t active_blocks, active_blocks_peak;  // allocated ones
  uint64_t segments, segments_peak, segments_total;
  uint64_t waiting_blocks, waiting_bytes;  // released, but streams that record_stream named may still use them
  uint64_t inactive_split_blocks, inactive_split_bytes;  // free, in segments of which another part is not
  uint64_t allocations;                                  // calls that gave a block
  uint64_t cache_hits;                                   // of these, without mem_alloc
  uint64_t retries;                                      // OUT_OF_MEMORY -> flush -> retry
  uint64_t out_of_memory;                                // raised
};

// Thread-safe. Size classes below 1 MiB, best fit with split and merge above. Reuse is stream-ordered: a freed block
// serves later allocations for its own stream at once, and others only after empty_cache(); a block that record_stream
// named further streams for waits for an event recorded on each of these at its release.
class Pool {
 public:
  explicit Pool(Device& device);
  ~Pool();  // gives what is free back; blocks that are still allocated stay so
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // bytes >= 1. Never null: on OUT_OF_MEMORY (or beyond the memory fraction) flushes the cache of this pool, retries
  // once and raises kOutOfMemory with a summary: asked for, free and total, allocated, reserved, largest free block,
  // what to do.
  Block* allocate(uint64_t bytes, Stream& stream);
  // Once per block, and after everything that used it has been submitted.
  void release(Block* block) noexcept;
  // The stream, of any device, uses the block besides the one it was allocated for. Also for copies that a stream of
  // another device does.
  void record_stream(Block* block, Stream& stream);

  void empty_cache();                     // waits for events as needed, gives every wholly free segment back
  void set_memory_fraction(double part);  // of total memory, (0, 1]; raises kValue otherwise
  PoolStats stats();
  PoolStats totals();  // without waiting and inactive ones, for which stats() walks over all blocks under the lock
  void reset_peaks();
  // Copies of all blocks, free ones included, by segment and offset, for memory_snapshot(). Pointers in them are stale
  // but for `stream`.
  std::vector<Block> snapshot();
  void info(uint64_t* out_free, uint64_t* out_total);  // mem_info of the device

 private:
  PoolState* state_;
};

// Allocated block whose range holds the address torch has, null when none does: for checks, not for hot paths.
Block* block_at(uintptr_t address);

}  // namespace torch_fl
