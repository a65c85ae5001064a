// The fast lane's operators that read and add through indices.
#include "fast.h"
#include "canonical.h"
#include "kept_dims.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/embedding_ops.h>
#include <ATen/ops/gather_meta.h>
#include <ATen/ops/gather_ops.h>
#include <ATen/ops/index_select_ops.h>
#include <ATen/ops/scatter_add_meta.h>
#include <ATen/ops/scatter_add_ops.h>

namespace torch_fl::fast {
namespace {

namespace ops = at::_ops;
namespace meta = at::meta;

// Sizes of `index`, but all of `self` along the dimension that is indexed.
c10::SmallVector<int64_t, 8> reach(const Extent& self, const Extent& index, int64_t dim) {
  c10::SmallVector<int64_t, 8> sizes(index.sizes.begin(), index.sizes.end());
  sizes[size_t(dim)] = self.sizes[size_t(dim)];
  return sizes;
}

// Indices in the one dtype that the slot takes.
const at::Tensor& as_i64(const at::Tensor& index, at::Tensor& made) {
  if (index.scalar_type() != at::kInt) return index;
  made = cast(device_of(index.device()), index, FL_DTYPE_I64);
  return made;
}

struct Gather {
  static bool run(const Operator& op, const at::Tensor& out, bool given, const at::Tensor& self, int64_t dim,
                  const at::Tensor& index, bool /*sparse_grad*/) {
    Device& device = common_device(op.name.c_str(), {&self, &index, &out});
    if (out.numel() == 0) return true;
    at::Tensor made;
    const at::Tensor& indices = as_i64(index, made);
    const Extent from(self);
    const Extent at(indices);
    const Extent to(out);
    const int64_t along = c10::maybe_wrap_dim(dim, self.dim());
    const auto sizes = reach(from, at, along);
    Call call(op, device);
    call.tensor(0, self, sizes, from.strides);
    call.integer(1, along);
    call.tensor(2, indices, at.sizes, at.strides);
    give_output(call, out, given, to.sizes, to.strides);
    return call.submit();
  }
};

struct ScatterAdd {
  static bool run(const Operator& op, const at::Tensor& out, bool given, const at::Tensor& self, int64_t dim,
                  const at::Tensor& index, const at::Tensor& src) {
    Device& device = common_device(op.name.c_str(), {&self, &index, &src, &out});
    if (index.numel() == 0) {
      if (!out.is_same(self)) out.copy_(self);
      return true;
    }
    at::Tensor made;
    const at::Tensor& indices = as_i64(index, made);
    const Extent from(self);
    const Extent at(indices);
    const Extent added(src);
    const Extent to(out);
    Call call(op, device);
    call.tensor(0, self, from.sizes, from.strides);
    call.integer(1, c10::maybe_wrap_dim(dim, self.dim()));
    call.tensor(2, indices, at.sizes, at.strides);
    call.tensor(3, src, at.sizes, added.strides);
    give_output(call, out, given, to.sizes, to.strides);
    return call.submit();
  }
};

// ---- Without a shape function --------------------------------------------------------------------------------------

c10::SmallVector<int64_t, 8> selected_sizes(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  TORCH_CHECK_INDEX(index.dim() <= 1, "index_select(): Index is supposed to be a vector");
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
              "index_select(): Expected dtype int32 or int64 for index");
  TORCH_CHECK(dim == 0 || dim < self.dim(), "index_select(): Indexing dim ", dim, " is out of bounds of tensor");
  TORCH_CHECK(self.dim() != 0 || index.numel() == 1,
              "index_select(): Index to scalar can have only 1 value, got ", index.numel(), " value(s)");
  c10::SmallVector<int64_t, 8> sizes(self.sizes().begin(), self.sizes().end());
  if (self.dim() > 0) sizes[size_t(dim)] = index.numel();
  return sizes;
}

bool run_index_select(const at::Tensor& out, bool given, const at::Tensor& self, int64_t dim,
                      const at::Tensor& index) {
  const Operator* op = entry_of<ops::index_select>();
  if (op == nullptr) return false;
  Call call(*op, common_device(op->name.c_str(), {&self, &index, &out}));
  const Extent from(self);
  const Extent at(index);
  const Extent to(out);
  call.tensor(0, self, from.sizes, from.strides);
  call.integer(1, dim);
  call.tensor(2, index, at.sizes, at.strides);
  give_output(call, out, given, to.sizes, to.strides);
  return call.submit();
}

at::Tensor index_select(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  const int64_t along = c10::maybe_wrap_dim(dim, self.dim());
  at::Tensor out = empty_on(device_of(self.device()), self.scalar_type(), selected_sizes(self, along, index));
  if (run_index_select(out, /*given=*/false, self, along, index)) return out;
  return stepped_down<ops::index_select>(self, dim, index).back().toTensor();
}

at::Tensor& index_select_out(const at::Tensor& self, int64_t dim, const at::Tensor& index, at::Tensor& out) {
  const int64_t along = c10::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "index_select(): self and result must have the same scalar type");
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, index);
  fit_out(out, selected_sizes(self, along, index), {}, self.options());
  if (run_index_select(out, /*given=*/true, self, along, index)) return out;
  stepped_down<ops::index_select_out>(self, dim, index, out);
  return out;
}

at::Tensor embedding(const at::Tensor& weight, const at::Tensor& indices, int64_t padding_idx,
                     bool scale_grad_by_freq, bool sparse) {
  TORCH_CHECK(weight.dim() == 2, "'weight' must be 2-D");
  TORCH_CHECK(indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt,
              "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got ",
              indices.scalar_type(), " instead (while checking arguments for embedding)");
  if (const Operator* op = entry_of<ops::embedding>()) {
    Device& device = common_device(op->name.c_str(), {&weight, &indices});
    c10::SmallVector<int64_t, 8> sizes(indices.sizes().begin(), indices.sizes().end());
    sizes.push_back(weight.size(1));
    at::Tensor out = empty_on(device, weight.scalar_type(), sizes);
    Call call(*op, device);
    call.tensor(0, weight);
    call.tensor(1, indices);
    call.output(out);
    if (call.submit()) return out;
  }
  return stepped_down<ops::embedding>(weight, indices, padding_idx, scale_grad_by_freq, sparse).back().toTensor();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<ops::gather, None, ops::gather_out, meta::structured_gather, Gather>(m);
  structured<ops::scatter_add, ops::scatter_add_, ops::scatter_add_out, meta::structured_scatter_add, ScatterAdd>(m);
  m.impl("index_select", &index_select);
  m.impl("index_select.out", &index_select_out);
  m.impl("embedding", TORCH_FN(embedding));
}

}  // namespace
}  // namespace torch_fl::fast
