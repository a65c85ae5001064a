// The free blocks of one stream, by size: best fit in constant time but for the walk along one class.
#pragma once
#include "pool_node.h"
#include "size_class.h"

namespace torch_fl {

class FreeIndex {
 public:
  explicit FreeIndex(uint32_t granule_shift) noexcept : shift_(granule_shift) {}

  void insert(Node* node) noexcept {
    uint32_t c = class_below(node->bytes >> shift_);
    node->state = NodeState::kIndexed;
    node->free_previous = nullptr;
    node->free_next = lists_[c];
    if (lists_[c] != nullptr) lists_[c]->free_previous = node;
    lists_[c] = node;
    used_[c / 64] |= 1ull << (c % 64);
  }

  void remove(Node* node) noexcept {
    uint32_t c = class_below(node->bytes >> shift_);
    if (node->free_next != nullptr) node->free_next->free_previous = node->free_previous;
    if (node->free_previous != nullptr) {
      node->free_previous->free_next = node->free_next;
      return;
    }
    lists_[c] = node->free_next;
    if (lists_[c] == nullptr) used_[c / 64] &= ~(1ull << (c % 64));
  }

  // Takes out the smallest block of at least `bytes` (a multiple of the granule), null when there is none.
  Node* take(uint64_t bytes) noexcept {
    uint32_t own = class_below(bytes >> shift_);
    Node* best = smallest_in(own, bytes);
    for (uint32_t c = next_used(own + 1); best == nullptr && c < kSizeClasses; c = next_used(c + 1)) {
      best = smallest_in(c, bytes);
    }
    if (best != nullptr) remove(best);
    return best;
  }

  uint64_t largest() const noexcept {
    uint64_t most = 0;
    for (uint32_t c = 0; c < kSizeClasses; c++) {
      for (Node* node = lists_[c]; node != nullptr; node = node->free_next) {
        if (node->bytes > most) most = node->bytes;
      }
    }
    return most;
  }

 private:
  Node* smallest_in(uint32_t c, uint64_t bytes) const noexcept {
    constexpr int kEnough = 32;  // a fit among so many is as good as the best: the lock is held
    Node* best = nullptr;
    int seen = 0;
    for (Node* node = lists_[c]; node != nullptr && (best == nullptr || seen < kEnough);
         node = node->free_next, seen++) {
      if (node->bytes < bytes) continue;
      if (best == nullptr || node->bytes < best->bytes) best = node;
      if (best->bytes == bytes) break;
    }
    return best;
  }

  // The first class from c on that has a block, kSizeClasses when none has.
  uint32_t next_used(uint32_t c) const noexcept {
    for (uint32_t word = c / 64; word < kSizeClasses / 64; word++) {
      uint64_t bits = used_[word];
      if (word == c / 64) bits &= ~0ull << (c % 64);
      if (bits != 0) return word * 64 + static_cast<uint32_t>(__builtin_ctzll(bits));
    }
    return kSizeClasses;
  }

  uint32_t shift_;
  uint64_t used_[kSizeClasses / 64] = {};
  Node* lists_[kSizeClasses] = {};
};

}  // namespace torch_fl
