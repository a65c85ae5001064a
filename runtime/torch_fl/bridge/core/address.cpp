#include "address.h"

#include <sys/mman.h>

#include <map>
#include <mutex>

#include "error.h"
#include "pool_state.h"

namespace torch_fl {

namespace {

constexpr uint64_t kAlignmentKept = 65536;  // the largest alloc_align there may be

struct Claims {
  std::mutex mutex;  // before the lock of a pool
  struct Claim {
    uintptr_t end;
    Segment* segment;
  };
  std::map<uintptr_t, Claim> by_begin;

  bool free_locked(uintptr_t begin, uintptr_t end) const {
    auto after = by_begin.lower_bound(end);
    if (after == by_begin.begin()) return true;
    return std::prev(after)->second.end <= begin;
  }
};

Claims& claims() {
  static Claims& leaked = *new Claims;
  return leaked;
}

AddressRange own_range(uint64_t base, uint64_t bytes) { return {static_cast<uintptr_t>(base), bytes, nullptr, 0}; }

AddressRange reserved_range(uint64_t base, uint64_t bytes) {
  uint64_t mapped_bytes = bytes + 2 * kAlignmentKept;
  void* mapped = mmap(nullptr, mapped_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    raise(ErrorClass::kRuntime, "no address space for " + std::to_string(bytes) + " bytes of device memory");
  }
  uintptr_t begin = reinterpret_cast<uintptr_t>(mapped);
  uintptr_t aligned = (begin + kAlignmentKept - 1) / kAlignmentKept * kAlignmentKept + base % kAlignmentKept;
  return {aligned, bytes, mapped, mapped_bytes};
}

}  // namespace

AddressRange claim_addresses(Segment* segment, const Device& device, uint64_t base, uint64_t bytes) {
  Claims& all = claims();
  AddressRange range = own_range(base, bytes);
  {
    std::lock_guard<std::mutex> guard(all.mutex);
    bool whole = base + bytes > base;
    if (device.info.address_model == FL_ADDRESS_LINEAR && whole && all.free_locked(range.begin, range.begin + bytes)) {
      all.by_begin[range.begin] = {range.begin + bytes, segment};
      return range;
    }
  }
  // What mmap gives is nobody's memory, but a vendor's number may have come to equal it.
  std::vector<AddressRange> taken;
  for (;;) {
    range = reserved_range(base, bytes);
    std::lock_guard<std::mutex> guard(all.mutex);
    if (all.free_locked(range.begin, range.begin + bytes)) {
      all.by_begin[range.begin] = {range.begin + bytes, segment};
      break;
    }
    taken.push_back(range);
  }
  for (const AddressRange& other : taken) munmap(other.mapped, other.mapped_bytes);
  return range;
}

void release_addresses(const AddressRange& range) noexcept {
  {
    std::lock_guard<std::mutex> guard(claims().mutex);
    claims().by_begin.erase(range.begin);
  }
  if (range.mapped != nullptr) munmap(range.mapped, range.mapped_bytes);
}

Block* block_at(uintptr_t address) {
  refuse_forked();
  Claims& all = claims();
  std::lock_guard<std::mutex> guard(all.mutex);
  auto after = all.by_begin.upper_bound(address);
  if (after == all.by_begin.begin()) return nullptr;
  const Claims::Claim& claim = std::prev(after)->second;
  if (address >= claim.end) return nullptr;
  SpinGuard pool_guard(claim.segment->pool->lock);
  for (Block* block = claim.segment->first; block != nullptr; block = block->next) {
    if (address - block->address < block->bytes) return block->allocated ? block : nullptr;
  }
  return nullptr;
}

}  // namespace torch_fl
