// Sizes in classes of four steps per power of two, counted in granules: 1 2 3 4 5 6 7 8 10 12 14 16 20 ...
#pragma once
#include <cstdint>

namespace torch_fl {

constexpr uint32_t kSizeClasses = 192;  // more than there are for sizes below 2^48

// The largest class that is not above `granules`. Class 0 is of no granules.
inline uint32_t class_below(uint64_t granules) noexcept {
  uint32_t step = 61 - static_cast<uint32_t>(__builtin_clzll(granules | 4));  // log2 of the distance between classes
  return 4 * step + static_cast<uint32_t>(granules >> step);
}

// Granules of a class.
inline uint64_t class_granules(uint32_t size_class) noexcept {
  if (size_class < 8) return size_class;
  uint32_t step = size_class / 4 - 1;
  return static_cast<uint64_t>(size_class - 4 * step) << step;
}

}  // namespace torch_fl
