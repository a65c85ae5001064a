#include "kept_dims.h"

#include <c10/core/WrapDimMinimal.h>
#include <c10/util/irange.h>

namespace torch_fl {

Dims::Dims(int64_t ndim, c10::IntArrayRef dims) {
  const int64_t count = ndim == 0 ? 1 : ndim;
  TORCH_CHECK(count <= 64, "only tensors with up to 64 dims are supported");
  for (int64_t dim : dims) {
    const int64_t wrapped = c10::maybe_wrap_dim(dim, ndim);
    TORCH_CHECK(!has(wrapped), "dim ", wrapped, " appears multiple times in the list of dims");
    mask_ |= uint64_t(1) << wrapped;
  }
  if (dims.empty()) mask_ = ~uint64_t(0) >> (64 - count);
  for (const auto dim : c10::irange(count))
    if (has(dim)) list_.push_back(dim);
}

KeptDims::KeptDims(const at::Tensor& tensor, int64_t ndim, const Dims& dims) {
  const int64_t count = ndim == 0 ? 1 : ndim;
  const bool gone = tensor.dim() != ndim || ndim == 0;
  int64_t next = 0;
  for (const auto dim : c10::irange(count)) {
    const bool absent = gone && dims.has(dim);
    sizes_.push_back(absent ? 1 : tensor.size(next));
    strides_.push_back(absent ? 1 : tensor.stride(next));
    if (!absent) ++next;
  }
}

Extent::Extent(const at::Tensor& tensor) : sizes(tensor.sizes()), strides(tensor.strides()) {
  static const int64_t one = 1;
  if (!sizes.empty()) return;
  sizes = c10::IntArrayRef(one);
  strides = c10::IntArrayRef(one);
}

}  // namespace torch_fl
