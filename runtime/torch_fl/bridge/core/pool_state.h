// The inside of a pool. Functions whose names end in _locked are called with `lock` held.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "address.h"
#include "error.h"
#include "free_index.h"
#include "pool_node.h"
#include "spin_lock.h"

namespace torch_fl {

constexpr uint64_t kSmallLimit = 1ull << 20;      // sizes up to here have bins
constexpr uint64_t kSmallSegment = 2ull << 20;    // what they are cut from
constexpr uint64_t kLargeSegment = 20ull << 20;   // what sizes below kOwnSegment are cut from
constexpr uint64_t kOwnSegment = 10ull << 20;     // sizes from here on get a segment of their own
constexpr uint64_t kLargeStep = 2ull << 20;       // of which the size is a multiple
constexpr uint64_t kLargeRounding = 4096;         // large blocks are multiples of it
constexpr uint64_t kLargestRequest = 1ull << 46;  // larger ones are refused without asking
constexpr uint32_t kBins = 53;                    // classes of 1 ... kSmallLimit / kGranule granules

// A number with its history.
struct Gauge {
  uint64_t added = 0;
  uint64_t removed = 0;
  uint64_t peak = 0;

  uint64_t now() const noexcept { return added - removed; }
  void add(uint64_t n) noexcept {
    added += n;
    if (now() > peak) peak = now();
  }
};

// What one stream has: small blocks and large ones are cut from segments of different kinds, so that a small block
// never keeps a large one from being whole.
struct StreamMemory {
  explicit StreamMemory(uint32_t granule_shift) noexcept : small(granule_shift), large(granule_shift) {}
  Node* bins[kBins] = {};
  FreeIndex small;
  FreeIndex large;
};

struct Segment {
  PoolState* pool;
  StreamMemory* memory;
  Stream* stream;
  uint64_t base;
  uint64_t bytes;
  AddressRange addresses;
  bool small;
  Node* first;
  Segment* previous;  // among the pool's
  Segment* next;

  bool wholly_free() const noexcept { return first->state == NodeState::kIndexed && first->bytes == bytes; }
};

// Further streams of a block (Block::bookkeeping), and from its release on what must complete before it is free.
struct Uses {
  struct Pending {
    Device* device;
    fl_event event;
  };
  Node* node;
  std::vector<Stream*> streams;
  std::vector<Pending> pending;
  Uses* next;
};

// A request in all its forms.
struct Request {
  uint64_t bytes;  // asked for
  uint64_t size;   // of the block that will do
  bool small;
  uint32_t bin;
  StreamMemory* memory;
  Stream* stream;
};

struct PoolState {
  explicit PoolState(Device& device);
  ~PoolState();

  // ---- pool.cpp: cutting and joining blocks
  Node* allocate_slowly(uint64_t bytes, Stream& stream);
  StreamMemory& memory_of(Stream& stream);
  Node* take_locked(const Request& request) noexcept;
  Node* cut_locked(Node* node, const Request& request) noexcept;
  void hand_out_locked(Node* node, uint64_t requested) noexcept;
  void free_locked(Node* node) noexcept;
  void join_locked(Node* node) noexcept;
  void join_bins_locked(StreamMemory& memory) noexcept;
  Node* spare_locked() noexcept;

  // ---- pool_segments.cpp: memory from and to the vendor
  Node* grow(const Request& request);
  fl_status add_segment(uint64_t bytes, const Request& request, VendorError& error, Node** out);
  void flush();
  std::unique_lock<std::mutex> wait_for_turn();
  Segment* detach_free_segments_locked() noexcept;
  void attach_locked(Segment* segment) noexcept;
  void give_back(Segment* segment) noexcept;

  // ---- pool_uses.cpp: blocks that further streams use
  void add_use(Node* node, Stream& stream);
  void release_used(Node* node) noexcept;
  bool reclaim_completed() noexcept;
  bool reclaim_in_turn() noexcept;
  void wait_for_uses_in_turn();

  // ---- pool_report.cpp
  PoolStats stats();
  PoolStats totals();
  PoolStats totals_locked() const noexcept;
  [[noreturn]] void raise_out_of_memory(const Request& request, const VendorError& error);

  Device& device;
  SpinLock lock;
  uint32_t granule_shift;
  std::vector<std::unique_ptr<StreamMemory>> memories;  // by id of the stream
  Gauge allocated;
  Gauge requested;
  Gauge blocks;
  Gauge reserved;
  Gauge segments;
  uint64_t growing = 0;  // bytes that mem_alloc is being asked for
  uint64_t limit = UINT64_MAX;
  uint64_t misses = 0;
  uint64_t retries = 0;
  uint64_t out_of_memory = 0;
  Segment* first_segment = nullptr;
  Node* spare_nodes = nullptr;
  std::vector<std::unique_ptr<Node[]>> node_chunks;

  std::mutex turn_mutex;  // of who reclaims blocks and flushes; held for long, and for calls of the vendor
  std::mutex uses_mutex;  // guards what follows and what blocks know of their uses; taken before `lock`
  Uses* waiting = nullptr;
  std::atomic<uint64_t> waiting_blocks{0};
};

inline uint64_t round_up(uint64_t value, uint64_t multiple) noexcept {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace torch_fl
