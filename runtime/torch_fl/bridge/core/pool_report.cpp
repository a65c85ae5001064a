// What a pool says of itself.
#include <algorithm>
#include <cstdio>

#include "pool_state.h"

namespace torch_fl {

namespace {

std::string readable(uint64_t bytes) {
  const char* const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024.0 && unit < 4; unit++) value /= 1024.0;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
  return text;
}

Node* next_of(Node* before) noexcept { return node(before->next); }

}  // namespace

PoolStats PoolState::totals_locked() const noexcept {
  PoolStats out{};
  out.allocated_bytes = allocated.now();
  out.allocated_bytes_peak = allocated.peak;
  out.allocated_bytes_total = allocated.added;
  out.requested_bytes = requested.now();
  out.requested_bytes_peak = requested.peak;
  out.requested_bytes_total = requested.added;
  out.reserved_bytes = reserved.now();
  out.reserved_bytes_peak = reserved.peak;
  out.reserved_bytes_total = reserved.added;
  out.active_blocks = blocks.now();
  out.active_blocks_peak = blocks.peak;
  out.segments = segments.now();
  out.segments_peak = segments.peak;
  out.segments_total = segments.added;
  out.allocations = blocks.added;
  out.cache_hits = blocks.added - misses;
  out.retries = retries;
  out.out_of_memory = out_of_memory;
  return out;
}

PoolStats PoolState::totals() {
  SpinGuard guard(lock);
  return totals_locked();
}

PoolStats PoolState::stats() {
  SpinGuard guard(lock);
  PoolStats out = totals_locked();
  for (Segment* segment = first_segment; segment != nullptr; segment = segment->next) {
    uint64_t free_blocks = 0;
    uint64_t free_bytes = 0;
    for (Node* block = segment->first; block != nullptr; block = next_of(block)) {
      if (block->state == NodeState::kWaiting) {
        out.waiting_blocks += 1;
        out.waiting_bytes += block->bytes;
      } else if (!block->allocated) {
        free_blocks += 1;
        free_bytes += block->bytes;
      }
    }
    if (free_bytes == segment->bytes) continue;
    out.inactive_split_blocks += free_blocks;
    out.inactive_split_bytes += free_bytes;
  }
  return out;
}

void PoolState::raise_out_of_memory(const Request& request, const VendorError& error) {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = device.info.total_bytes;
  device.vendor.memory.info(device.handle, &free_bytes, &total_bytes, nullptr);
  PoolStats now = stats();
  uint64_t largest = 0;
  uint64_t allowed = 0;
  {
    SpinGuard guard(lock);
    out_of_memory += 1;
    allowed = limit;
    if (request.memory != nullptr) largest = (request.small ? request.memory->small : request.memory->large).largest();
  }
  std::string text =
      "fl:" + std::to_string(device.index) + " (" + device.vendor.name + ") is out of memory: tried to " + "allocate " +
      readable(request.bytes) + " for stream " + std::to_string(request.stream->id) + ". Of " + readable(total_bytes) +
      " the device has " + readable(free_bytes) + " free. This process has allocated " + readable(now.allocated_bytes) +
      " in " + std::to_string(now.active_blocks) + " blocks and reserved " + readable(now.reserved_bytes) +
      "; the largest free block for this stream has " + readable(largest) + ".";
  if (allowed != UINT64_MAX) text += " The memory fraction allows it " + readable(allowed) + ".";
  std::string vendor_text = error.text();
  if (!vendor_text.empty()) text += " The vendor says: " + vendor_text + ".";
  text += " Free tensors that are no longer needed, or use smaller batches";
  if (allowed != UINT64_MAX) text += ", or allow a larger memory fraction";
  if (now.inactive_split_bytes >= request.bytes) {
    text += "; " + readable(now.inactive_split_bytes) +
            " are free in pieces between blocks that are in use, and blocks " + "of other streams";
  }
  raise(ErrorClass::kOutOfMemory, text + ".");
}

PoolStats Pool::stats() { return state_->stats(); }
PoolStats Pool::totals() { return state_->totals(); }

void Pool::reset_peaks() {
  SpinGuard guard(state_->lock);
  for (Gauge* gauge : {&state_->allocated, &state_->requested, &state_->blocks, &state_->reserved, &state_->segments}) {
    gauge->peak = gauge->now();
  }
}

std::vector<Block> Pool::snapshot() {
  std::vector<Block> copies;
  for (size_t room = 0;; room += room / 4 + 64) {
    copies.reserve(room);  // outside the lock
    copies.clear();
    bool all = true;
    SpinGuard guard(state_->lock);
    for (Segment* segment = state_->first_segment; segment != nullptr; segment = segment->next) {
      for (Node* block = segment->first; block != nullptr && all; block = next_of(block)) {
        all = copies.size() < copies.capacity();
        if (all) copies.push_back(*block);
      }
    }
    if (all) break;
  }
  std::sort(copies.begin(), copies.end(),
            [](const Block& a, const Block& b) { return a.base != b.base ? a.base < b.base : a.offset < b.offset; });
  return copies;
}

}  // namespace torch_fl
