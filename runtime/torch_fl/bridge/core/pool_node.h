// A block as its pool sees it.
#pragma once
#include "pool.h"

namespace torch_fl {

enum class NodeState : uint8_t {
  kAllocated,
  kBinned,   // free, kept in its size for the next allocation of that size
  kIndexed,  // free, joined with free neighbours
  kWaiting,  // released, but further streams may still use it
};

struct Node : Block {
  Node* free_next;  // in a bin, the index, or the pool's spare nodes
  Node* free_previous;
  Node** bin;  // where a release puts it; null: into the index
  NodeState state;
};

inline Node* node(Block* block) noexcept { return static_cast<Node*>(block); }

}  // namespace torch_fl
