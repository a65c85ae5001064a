#include "pool.h"

#include <algorithm>
#include <new>

#include "pool_state.h"

namespace torch_fl {

namespace {

constexpr size_t kNodesPerChunk = 128;

uint32_t log2_of(uint64_t power_of_two) { return 63 - static_cast<uint32_t>(__builtin_clzll(power_of_two)); }

}  // namespace

PoolState::PoolState(Device& device_)
    : device(device_), granule_shift(log2_of(std::max<uint64_t>(kGranule, device_.info.alloc_align))) {}

// ---- the fast path ------------------------------------------------------------------------------------------------

Block* Pool::allocate(uint64_t bytes, Stream& stream) {
  PoolState& state = *state_;
  if (__builtin_expect(bytes - 1 < kSmallLimit, 1)) {
    uint32_t bin = class_below((bytes - 1) >> state.granule_shift) + 1;
    SpinGuard guard(state.lock);
    size_t id = static_cast<size_t>(stream.id);
    if (__builtin_expect(id < state.memories.size(), 1) && state.memories[id] != nullptr) {
      Node*& head = state.memories[id]->bins[bin];
      if (Node* found = head) {
        head = found->free_next;
        state.hand_out_locked(found, bytes);
        return found;
      }
    }
  }
  return state.allocate_slowly(bytes, stream);
}

void Pool::release(Block* block) noexcept {
  Node* released = node(block);
  if (__builtin_expect(released->bookkeeping != nullptr, 0)) {
    state_->release_used(released);
    return;
  }
  if (__builtin_expect(!state_->lock.lock(), 0)) return;
  released->allocated = false;
  state_->allocated.removed += released->bytes;
  state_->requested.removed += released->requested;
  state_->blocks.removed += 1;
  state_->free_locked(released);
  state_->lock.unlock();
}

void PoolState::hand_out_locked(Node* found, uint64_t requested_bytes) noexcept {
  found->state = NodeState::kAllocated;
  found->allocated = true;
  found->requested = requested_bytes;
  allocated.add(found->bytes);
  requested.add(requested_bytes);
  blocks.add(1);
}

void PoolState::free_locked(Node* released) noexcept {
  if (__builtin_expect(released->bin != nullptr, 1)) {
    released->state = NodeState::kBinned;
    released->free_next = *released->bin;
    *released->bin = released;
  } else {
    join_locked(released);
  }
}

// ---- cutting and joining ------------------------------------------------------------------------------------------

Node* PoolState::allocate_slowly(uint64_t bytes, Stream& stream) {
  if (bytes == 0) raise(ErrorClass::kValue, "the pool has no blocks of 0 bytes");
  refuse_forked();
  Request request{};
  request.bytes = bytes;
  request.stream = &stream;
  request.small = bytes <= kSmallLimit;
  if (request.small) {
    request.bin = class_below((bytes - 1) >> granule_shift) + 1;
    request.size = class_granules(request.bin) << granule_shift;
  } else if (bytes > kLargestRequest) {
    raise_out_of_memory(request, VendorError());
  } else {
    request.size = round_up(bytes, std::max<uint64_t>(kLargeRounding, 1ull << granule_shift));
  }
  request.memory = &memory_of(stream);
  for (int attempt = 0; attempt < 2; attempt++) {
    if (attempt == 1 && !reclaim_completed()) break;
    SpinGuard guard(lock);
    if (Node* found = take_locked(request)) {
      hand_out_locked(found, bytes);
      return found;
    }
  }
  return grow(request);
}

StreamMemory& PoolState::memory_of(Stream& stream) {
  size_t id = static_cast<size_t>(stream.id);
  {
    SpinGuard guard(lock);
    if (id < memories.size() && memories[id] != nullptr) return *memories[id];
  }
  auto fresh = std::make_unique<StreamMemory>(granule_shift);
  SpinGuard guard(lock);
  if (id >= memories.size()) memories.resize(id + 1);
  if (memories[id] == nullptr) memories[id] = std::move(fresh);
  return *memories[id];
}

Node* PoolState::take_locked(const Request& request) noexcept {
  if (!request.small) {
    Node* found = request.memory->large.take(request.size);
    return found == nullptr ? nullptr : cut_locked(found, request);
  }
  Node*& head = request.memory->bins[request.bin];
  if (Node* found = head) {
    head = found->free_next;
    return found;
  }
  Node* found = request.memory->small.take(request.size);
  if (found == nullptr) {
    // Blocks that were kept in their sizes may give one of this size together. Each was released since it was last
    // joined, so this costs a constant time for each release.
    join_bins_locked(*request.memory);
    found = request.memory->small.take(request.size);
  }
  return found == nullptr ? nullptr : cut_locked(found, request);
}

// Leaves `request.size` bytes of a free block that is in no list, and indexes the rest where it is worth it.
Node* PoolState::cut_locked(Node* whole, const Request& request) noexcept {
  uint64_t rest_bytes = whole->bytes - request.size;
  Node* rest = rest_bytes >= (request.small ? 1 : kSmallLimit) ? spare_locked() : nullptr;
  if (rest != nullptr) {
    *static_cast<Block*>(rest) = *whole;
    rest->offset += request.size;
    rest->address += request.size;
    rest->bytes = rest_bytes;
    rest->previous = whole;
    if (rest->next != nullptr) rest->next->previous = rest;
    whole->next = rest;
    whole->bytes = request.size;
    (request.small ? request.memory->small : request.memory->large).insert(rest);
  }
  // Only a block of exactly its class's size may serve whoever asks for that class.
  whole->bin = request.small && whole->bytes == request.size ? &request.memory->bins[request.bin] : nullptr;
  return whole;
}

// Joins a block that is in no list with its free neighbours, and indexes what comes of it.
void PoolState::join_locked(Node* freed) noexcept {
  Segment& segment = *freed->segment;
  FreeIndex& index = segment.small ? segment.memory->small : segment.memory->large;
  auto absorb = [&](Node* left, Node* right) {
    left->bytes += right->bytes;
    left->next = right->next;
    if (right->next != nullptr) right->next->previous = left;
    right->free_next = spare_nodes;
    spare_nodes = right;
  };
  Node* after = node(freed->next);
  if (after != nullptr && after->state == NodeState::kIndexed) {
    index.remove(after);
    absorb(freed, after);
  }
  Node* before = node(freed->previous);
  if (before != nullptr && before->state == NodeState::kIndexed) {
    index.remove(before);
    absorb(before, freed);
    freed = before;
  }
  freed->requested = 0;
  index.insert(freed);
}

void PoolState::join_bins_locked(StreamMemory& memory) noexcept {
  for (Node*& head : memory.bins) {
    while (Node* binned = head) {
      head = binned->free_next;
      join_locked(binned);
    }
  }
}

// Null when the host has no memory for another.
Node* PoolState::spare_locked() noexcept {
  if (spare_nodes == nullptr) {
    try {
      node_chunks.push_back(std::make_unique<Node[]>(kNodesPerChunk));
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    for (size_t i = 0; i < kNodesPerChunk; i++) {
      Node* fresh = &node_chunks.back()[i];
      fresh->free_next = spare_nodes;
      spare_nodes = fresh;
    }
  }
  Node* taken = spare_nodes;
  spare_nodes = taken->free_next;
  return taken;
}

// ---- the rest of the interface ------------------------------------------------------------------------------------

Pool::Pool(Device& device) : state_(new PoolState(device)) {}

Pool::~Pool() { delete state_; }

void Pool::record_stream(Block* block, Stream& stream) { state_->add_use(node(block), stream); }

void Pool::empty_cache() {
  refuse_forked();
  state_->flush();
}

void Pool::set_memory_fraction(double part) {
  if (!(part > 0.0 && part <= 1.0)) {
    raise(ErrorClass::kValue, "a memory fraction of " + std::to_string(part) + " is outside (0, 1]");
  }
  double total = static_cast<double>(state_->device.info.total_bytes);
  SpinGuard guard(state_->lock);
  state_->limit = part == 1.0 ? UINT64_MAX : static_cast<uint64_t>(part * total);
}

void Pool::info(uint64_t* out_free, uint64_t* out_total) {
  Device& device = state_->device;
  VendorError error;
  check(device.vendor.memory.info(device.handle, out_free, out_total, error.out()), error, device, "mem_info");
}

}  // namespace torch_fl
