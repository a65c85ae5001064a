// The fast lane's matrix products.
#include "fast.h"

#include <ATen/ops/addmm_meta.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/bmm_meta.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/mm_meta.h>
#include <ATen/ops/mm_ops.h>

namespace torch_fl::fast {
namespace {

namespace ops = at::_ops;
namespace meta = at::meta;

struct Product {
  static bool run(const Operator& op, const at::Tensor& out, bool given, const at::Tensor& self,
                  const at::Tensor& mat2) {
    Call call(op, common_device(op.name.c_str(), {&self, &mat2, &out}));
    call.tensor(0, self);
    call.tensor(1, mat2);
    give_output(call, out, given);
    return call.submit();
  }
};

struct ProductOfTwo : Product {
  static bool shortcut(const Operator& op, at::Tensor& out, const at::Tensor& self, const at::Tensor& mat2) {
    if (FL_HAS_DIMNAMES(self) || FL_HAS_DIMNAMES(mat2)) return false;
    if (self.dim() != 2 || mat2.dim() != 2 || self.size(1) != mat2.size(0)) return false;
    if (self.scalar_type() != mat2.scalar_type() || self.device() != mat2.device()) return false;
    Device& device = device_of(self.device());
    out = empty_on(device, self.scalar_type(), {self.size(0), mat2.size(1)});
    Call call(op, device);
    call.tensor(0, self);
    call.tensor(1, mat2);
    call.output(out);
    return call.submit_as_is();
  }
};

struct ProductAndSum {
  static bool run(const Operator& op, const at::Tensor& out, bool given, const at::Tensor& self,
                  const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta, const at::Scalar& alpha) {
    if (beta.isComplex() || alpha.isComplex()) return false;
    Call call(op, common_device(op.name.c_str(), {&self, &mat1, &mat2, &out}));
    const uint32_t dtype = fl_dtype(out.scalar_type());
    const at::Tensor expanded = self.sizes() == out.sizes() ? self : self.expand(out.sizes());
    call.tensor(0, expanded);
    call.tensor(1, mat1);
    call.tensor(2, mat2);
    call.number(3, number(beta, dtype));
    call.number(4, number(alpha, dtype));
    give_output(call, out, given);
    return call.submit();
  }
};

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<ops::mm, None, ops::mm_out, meta::structured_mm, ProductOfTwo>(m);
  structured<ops::bmm, None, ops::bmm_out, meta::structured_bmm, Product>(m);
  structured<ops::addmm, ops::addmm_, ops::addmm_out, meta::structured_addmm, ProductAndSum>(m);
}

}  // namespace
}  // namespace torch_fl::fast
