// The fast lane's operators that move or make elements.
#include "fast.h"
#include "canonical.h"
#include "device_copy.h"
#include "kept_dims.h"

#include <deque>

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/arange_ops.h>
#include <ATen/ops/cat_meta.h>
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/constant_pad_nd_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/flip_ops.h>

namespace torch_fl::fast {
namespace {

namespace ops = at::_ops;
namespace meta = at::meta;

struct Cat {
  // Contiguous tensors of one dtype.
  static bool shortcut(const Operator& op, at::Tensor& out, const at::ITensorListRef& tensors, int64_t dim) {
    c10::SmallVector<const at::TensorBase*, 8> list;
    c10::SmallVector<int64_t, 6> sizes;
    for (const at::Tensor& tensor : tensors) {
      if (FL_HAS_DIMNAMES(tensor)) return false;
      const at::TensorBase& first = list.empty() ? tensor : *list[0];
      const int64_t ndim = tensor.dim();
      if (ndim == 0 || ndim != first.dim() || dim >= ndim || dim < -ndim || !tensor.is_contiguous()) return false;
      if (tensor.scalar_type() != first.scalar_type() || tensor.device() != first.device()) return false;
      if (ndim > 3 && tensor.suggest_memory_format() != c10::MemoryFormat::Contiguous) return false;
      const int64_t along = dim < 0 ? dim + ndim : dim;
      if (list.empty()) sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
      for (int64_t d = 0; d < ndim && !list.empty(); ++d) {
        if (d == along)
          sizes[size_t(d)] += tensor.size(d);
        else if (sizes[size_t(d)] != tensor.size(d))
          return false;
      }
      list.push_back(&tensor);
    }
    if (list.empty()) return false;
    Device& device = device_of(list[0]->device());
    out = empty_on(device, list[0]->scalar_type(), sizes);
    Call call(op, device);
    call.tensors(0, list);
    call.integer(1, dim < 0 ? dim + int64_t(sizes.size()) : dim);
    call.output(out);
    return call.submit_as_is();
  }

  static bool run(const Operator& op, const at::Tensor& out, bool given, const at::ITensorListRef& tensors,
                  int64_t dim) {
    Device& device = device_of(out.device());
    const uint32_t dtype = fl_dtype(out.scalar_type());
    std::deque<at::Tensor> casts;
    c10::SmallVector<const at::TensorBase*, 8> list;
    for (const at::Tensor& tensor : tensors) {
      if (tensor.dim() == 1 && tensor.numel() == 0 && out.dim() != 1) continue;  // torch joins these with anything
      TORCH_CHECK(tensor.device() == out.device(),
                  "cat: Expected all tensors to be on the same device, but found at least two devices, ", out.device(),
                  " and ", tensor.device(), "!");
      const bool fits = fl_dtype(tensor.scalar_type()) == dtype;
      list.push_back(fits ? &tensor : &casts.emplace_back(cast(device, tensor, dtype)));
    }
    if (list.empty()) return out.numel() == 0;
    Call call(op, device);
    call.tensors(0, list);
    call.integer(1, c10::maybe_wrap_dim(dim, out.dim()));
    give_output(call, out, given);
    return call.submit();
  }
};

at::Tensor flip(const at::Tensor& self, c10::IntArrayRef wanted) {
  const Operator* op = entry_of<ops::flip>();
  if (op != nullptr) {
    const Dims dims(self.dim(), wanted);
    if (self.dim() == 0 || wanted.empty()) return self.clone();
    at::Tensor out = at::empty_like(self);
    Call call(*op, device_of(self.device()));
    call.tensor(0, self);
    call.integers(1, dims.list());
    call.output(out);
    if (call.submit()) return out;
  }
  return stepped_down<ops::flip>(self, wanted).back().toTensor();
}

// ---- Padding with a number; a negative one cuts off ----------------------------------------------------------------

void check_pad(const at::Tensor& self, c10::IntArrayRef pad) {
  TORCH_CHECK(pad.size() % 2 == 0, "Length of pad must be even but instead it equals ", pad.size());
  TORCH_CHECK(self.dim() >= int64_t(pad.size() / 2),
              "Length of pad should be no more than twice the number of dimensions of the input. Pad length is ",
              pad.size(), "while the input has ", self.dim(), "dimensions.");
}

at::Tensor constant_pad_nd(const at::Tensor& self, c10::IntArrayRef pad, const at::Scalar& value) {
  check_pad(self, pad);
  const Operator* op = entry_of<ops::constant_pad_nd>();
  const int64_t ndim = self.dim();
  c10::SmallVector<int64_t, 10> full(size_t(2 * ndim), 0);  // two entries per dimension, the last dimension first
  c10::SmallVector<int64_t, 8> sizes(self.sizes().begin(), self.sizes().end());
  at::Tensor inner = self;
  for (size_t i = 0; i < pad.size(); i += 2) {
    const int64_t dim = ndim - 1 - int64_t(i / 2);
    sizes[size_t(dim)] += pad[i] + pad[i + 1];
    const int64_t cut = std::max<int64_t>(-pad[i], 0);
    const int64_t kept = self.size(dim) - cut - std::max<int64_t>(-pad[i + 1], 0);
    if (kept != self.size(dim)) inner = inner.narrow(dim, cut, kept);  // raises where more is cut off than there is
    full[i] = std::max<int64_t>(pad[i], 0);
    full[i + 1] = std::max<int64_t>(pad[i + 1], 0);
  }
  if (op != nullptr && ndim > 0 && !value.isComplex()) {
    Device& device = device_of(self.device());
    at::Tensor out = empty_on(device, self.scalar_type(), sizes);
    const c10::MemoryFormat format = self.suggest_memory_format();
    if (format != c10::MemoryFormat::Contiguous) out.unsafeGetTensorImpl()->empty_tensor_restride(format);
    Call call(*op, device);
    call.tensor(0, inner);
    call.integers(1, full);
    call.number(2, number(value, fl_dtype(self.scalar_type())));
    call.output(out);
    if (call.submit()) return out;
  }
  return stepped_down<ops::constant_pad_nd>(self, pad, value).back().toTensor();
}

// ---- Numbers -------------------------------------------------------------------------------------------------------

at::Tensor& fill_inplace(at::Tensor& self, const at::Scalar& value) {
  if (self.numel() == 0) return self;
  const Operator* op = entry_of<ops::fill_Scalar>();
  const uint32_t dtype = fl_dtype(self.scalar_type());
  const at::Tensor once = without_repeats(self);  // torch fills expanded tensors, too
  if (op != nullptr && dtype != FL_DTYPE_NONE && !value.isComplex() &&
      at::has_internal_overlap(once) != at::MemOverlap::Yes) {
    Call call(*op, device_of(self.device()));
    call.number(0, number(value, dtype));
    call.output(once);
    if (call.submit()) return self;
  }
  stepped_down<ops::fill__Scalar>(self, value);
  return self;
}

at::Tensor fill(const at::Tensor& self, const at::Scalar& value) {
  at::Tensor out = at::empty_like(self);
  fill_inplace(out, value);
  return out;
}

at::Tensor& fill_tensor_inplace(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ", value.dim(),
              " dimensions.");
  if (value.device() == self.device()) return self.copy_(value);
  return self.fill_(value.item());  // either of the two may be the one on the device
}

at::Tensor& arange_out(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, at::Tensor& out) {
  // How many elements is for torch to say, which needs no memory for that.
  at::Tensor shape = at::empty({0}, out.options().device(at::kMeta));
  at::arange_out(shape, start, end, step);
  const Operator* op = entry_of<ops::arange_start_step>();
  const uint32_t dtype = fl_dtype(out.scalar_type());
  if (op != nullptr && dtype != FL_DTYPE_NONE) {
    if (out.numel() != shape.numel()) {
      if (out.numel() > 0)
        TORCH_WARN("The number of elements in the out tensor of shape ", out.sizes(), " is ", out.numel(),
                   " which does not match the computed number of elements ", shape.numel(),
                   ". Note that this may occur as a result of rounding error. The out tensor will be resized to a "
                   "tensor of shape (", shape.numel(), ",).");
      out.resize_(shape.sizes());
    }
    if (out.numel() == 0) return out;
    const int64_t numel = out.numel();
    const int64_t one = 1;
    at::Tensor flat = out.is_contiguous() ? out : at::empty({numel}, out.options());
    Call call(*op, device_of(out.device()));
    call.number(0, number_for_tensor(start, dtype));  // torch computes in a wider dtype and casts what comes of it
    call.number(1, number_for_tensor(end, dtype));    // which no element is: it may lie one beyond the dtype
    call.number(2, number_for_tensor(step, dtype));
    call.output(flat, c10::IntArrayRef(numel), c10::IntArrayRef(one));
    if (call.submit()) {
      if (!flat.is_same(out)) out.copy_(flat.view(out.sizes()));
      return out;
    }
  }
  stepped_down<ops::arange_start_out>(start, end, step, out);
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<ops::cat, None, ops::cat_out, meta::structured_cat, Cat>(m);
  m.impl("flip", &flip);
  m.impl("constant_pad_nd", TORCH_FN(constant_pad_nd));
  m.impl("fill.Scalar", &fill);
  m.impl("fill_.Scalar", &fill_inplace);
  m.impl("fill_.Tensor", &fill_tensor_inplace);
  m.impl("arange.start_out", &arange_out);
}

}  // namespace
}  // namespace torch_fl::fast
