// Reductions keep the reduced dimensions in their canonical form: views for that, and sets of dimensions.
#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

namespace torch_fl {

// Dimensions of a tensor, in canonical form: non-negative, sorted, each once, never none.
class Dims {
 public:
  // Of a tensor of `ndim` dimensions, of which a 0-dimensional one has one. No dims: all. Raises as torch does for one
  // out of range or given twice.
  Dims(int64_t ndim, c10::IntArrayRef dims);

  bool has(int64_t dim) const noexcept { return (mask_ >> dim & 1) != 0; }
  c10::IntArrayRef list() const noexcept { return list_; }

 private:
  uint64_t mask_ = 0;
  c10::SmallVector<int64_t, 8> list_;
};

// Sizes and strides of a tensor as it stands; a 0-dimensional one as of one dimension. Lives no longer than the tensor.
struct Extent {
  explicit Extent(const at::Tensor& tensor);

  c10::IntArrayRef sizes, strides;
};

// Sizes and strides of the result of reducing `dims` of `ndim` dimensions, which are kept already or gone: with them.
class KeptDims {
 public:
  KeptDims(const at::Tensor& tensor, int64_t ndim, const Dims& dims);

  c10::IntArrayRef sizes() const noexcept { return sizes_; }
  c10::IntArrayRef strides() const noexcept { return strides_; }

 private:
  c10::SmallVector<int64_t, 8> sizes_;
  c10::SmallVector<int64_t, 8> strides_;
};

}  // namespace torch_fl
