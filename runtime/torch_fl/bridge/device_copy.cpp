#include "device_copy.h"

#include <algorithm>

#include <c10/util/SmallVector.h>

#include "call.h"
#include "convert.h"

namespace torch_fl {
namespace {

// The same elements with as few dimensions as possible, in the order of the destination's memory: outermost first.
struct Walk {
  c10::SmallVector<int64_t, 6> sizes, to, from;

  bool is_run() const { return sizes.empty() || (sizes.size() == 1 && to[0] == 1 && from[0] == 1); }
};

Walk walk(const at::Tensor& destination, const at::Tensor& source) {
  struct Dimension {
    int64_t size, to, from;
  };
  c10::SmallVector<Dimension, 6> dims;
  for (int64_t d = 0; d < destination.dim(); d++) {
    if (destination.size(d) != 1) dims.push_back({destination.size(d), destination.stride(d), source.stride(d)});
  }
  std::stable_sort(dims.begin(), dims.end(), [](const Dimension& a, const Dimension& b) {
    return a.to != b.to ? a.to > b.to : a.from > b.from;
  });
  Walk out;
  for (const Dimension& inner : dims) {
    const bool merges = !out.sizes.empty() && out.to.back() == inner.size * inner.to &&
                        out.from.back() == inner.size * inner.from;
    if (merges) {
      out.sizes.back() *= inner.size;
      out.to.back() = inner.to;
      out.from.back() = inner.from;
    } else {
      out.sizes.push_back(inner.size);
      out.to.push_back(inner.to);
      out.from.push_back(inner.from);
    }
  }
  return out;
}

bool run_kernel(const at::Tensor& destination, const at::Tensor& source, const Walk& walk) {
  static const Operator* const op = find_operator("aten::_to_copy");
  if (op == nullptr) return false;
  Call call(*op, device_of(destination.device()));
  call.tensor(0, source, walk.sizes, walk.from);
  call.output(destination, walk.sizes, walk.to);
  return call.submit_as_is();
}

// The same memory from the same byte on; sizes and strides mean nothing.
at::Tensor seen_as(const at::Tensor& tensor, c10::ScalarType type) {
  at::Tensor out = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(tensor.storage()),
                                                            tensor.key_set(), c10::scalarTypeToTypeMeta(type));
  out.unsafeGetTensorImpl()->set_storage_offset(tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize()) /
                                                static_cast<int64_t>(c10::elementSize(type)));
  return out;
}

// Elements as integers of their size: what a device can copy without a kernel for the dtype itself.
bool run_kernel_on_bits(const at::Tensor& destination, const at::Tensor& source, Walk walk) {
  const size_t itemsize = destination.itemsize();
  if (itemsize == 16) {  // two integers each
    for (auto* strides : {&walk.to, &walk.from})
      for (int64_t& stride : *strides) stride *= 2;
    walk.sizes.push_back(2);
    walk.to.push_back(1);
    walk.from.push_back(1);
  }
  const c10::ScalarType type = itemsize == 1   ? c10::kByte
                               : itemsize == 2 ? c10::kShort
                               : itemsize == 4 ? c10::kInt
                                               : c10::kLong;
  return run_kernel(seen_as(destination, type), seen_as(source, type), walk);
}

}  // namespace

bool same_run(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || !a.is_non_overlapping_and_dense()) return false;
  for (int64_t d = 0; d < a.dim(); d++) {
    if (a.size(d) != 1 && a.stride(d) != b.stride(d)) return false;
  }
  return true;
}

at::Tensor without_repeats(const at::Tensor& tensor) {
  at::Tensor out = tensor;
  for (int64_t d = 0; d < tensor.dim(); d++) {
    if (tensor.stride(d) == 0 && tensor.size(d) > 1) out = out.narrow(d, 0, 1);
  }
  return out;
}

int64_t extent(const at::Tensor& tensor) {
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); d++) last += (tensor.size(d) - 1) * tensor.stride(d);
  return last + 1;
}

bool copy_on_device(const at::Tensor& destination, const at::Tensor& source) {
  const Walk steps = walk(destination, source);
  const bool same_dtype = destination.scalar_type() == source.scalar_type();
  if (same_dtype && steps.is_run()) {
    const uint64_t bytes = static_cast<uint64_t>(destination.numel()) * destination.itemsize();
    submit_copy(current_stream(device_of(destination.device())), place_of(destination), place_of(source), bytes);
    return true;
  }
  return run_kernel(destination, source, steps) || (same_dtype && run_kernel_on_bits(destination, source, steps));
}

}  // namespace torch_fl
