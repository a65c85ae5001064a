// What torch sees as the address of device memory: unique in the process, over all devices and vendors.
#pragma once
#include <cstdint>

#include "pool.h"

namespace torch_fl {

// A range of addresses that stands for a segment. `mapped` is null where the device's own addresses serve.
struct AddressRange {
  uintptr_t begin;
  uint64_t bytes;
  void* mapped;
  uint64_t mapped_bytes;
};

// The device's own range where it is LINEAR and no live range meets it, else one that is reserved with PROT_NONE and
// equals `base` modulo 64 KiB, so that an address is as aligned as what it stands for. Raises kRuntime when the process
// has no address space left.
AddressRange claim_addresses(Segment* segment, const Device& device, uint64_t base, uint64_t bytes);
void release_addresses(const AddressRange& range) noexcept;

}  // namespace torch_fl
