// The fast lane's reductions and scans.
#include "fast.h"
#include "canonical.h"
#include "kept_dims.h"

#include <ATen/ops/amax_meta.h>
#include <ATen/ops/amax_ops.h>
#include <ATen/ops/amin_meta.h>
#include <ATen/ops/amin_ops.h>
#include <ATen/ops/any_meta.h>
#include <ATen/ops/any_ops.h>
#include <ATen/ops/argmax_meta.h>
#include <ATen/ops/argmax_ops.h>
#include <ATen/ops/cumsum_meta.h>
#include <ATen/ops/cumsum_ops.h>
#include <ATen/ops/mean_meta.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/prod_meta.h>
#include <ATen/ops/prod_ops.h>
#include <ATen/ops/sum_meta.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/var_ops.h>

namespace torch_fl::fast {
namespace {

namespace ops = at::_ops;
namespace meta = at::meta;

// The input, cast to the output's dtype where no row takes it as it is: what `dtype=` means.
const at::Tensor& in_a_row(const Operator& op, const at::Tensor& self, const at::Tensor& out, at::Tensor& made) {
  const uint32_t from = fl_dtype(self.scalar_type());
  const uint32_t to = fl_dtype(out.scalar_type());
  if (from == to || (op.n_types > 1 && op.has_row(row_of(from, 0) | row_of(to, 1)))) return self;
  if (op.outs[0].is_fixed() || to == FL_DTYPE_NONE) return self;
  made = cast(device_of(self.device()), self, to);
  return made;
}

enum class Give { kList, kOne };  // what the slot of the dimensions takes

// self, dims; more slots are `more`'s.
template <class More>
bool reduce(const Operator& op, const at::Tensor& out, bool given, const at::Tensor& self, c10::IntArrayRef wanted,
            Give give, More&& more) {
  if (given) common_device(op.name.c_str(), {&self, &out});
  at::Tensor made;
  const at::Tensor& input = in_a_row(op, self, out, made);
  const Dims dims(self.dim(), wanted);
  const Extent from(input);
  const KeptDims to(out, self.dim(), dims);
  Call call(op, device_of(self.device()));
  call.tensor(0, input, from.sizes, from.strides);
  if (give == Give::kList)
    call.integers(1, dims.list());
  else
    call.integer(1, dims.list()[0]);
  more(call);
  give_output(call, out, given, to.sizes(), to.strides());
  return call.submit();
}

void nothing_more(Call&) {}

c10::IntArrayRef listed(at::OptionalIntArrayRef dims) { return dims.has_value() ? *dims : c10::IntArrayRef(); }

struct Reduce {
  static bool run(const Operator& op, const at::Tensor& out, bool given, const at::Tensor& self,
                  at::OptionalIntArrayRef dims, bool /*keepdim*/, std::optional<at::ScalarType> /*dtype*/ = {}) {
    return reduce(op, out, given, self, listed(dims), Give::kList, nothing_more);
  }
};

struct ReduceOne {
  static bool run(const Operator& op, const at::Tensor& out, bool given, const at::Tensor& self, int64_t dim,
                  bool /*keepdim*/, std::optional<at::ScalarType> /*dtype*/ = {}) {
    return reduce(op, out, given, self, dim, Give::kOne, nothing_more);
  }
};

struct Argmax {
  static bool run(const Operator& op, const at::Tensor& out, bool given, const at::Tensor& self,
                  std::optional<int64_t> dim, bool keepdim) {
    return dim.has_value() ? ReduceOne::run(op, out, given, self, *dim, keepdim)
                           : ReduceOne::run(op, out, given, self.reshape(-1), 0, keepdim);
  }
};

struct Scan {
  static bool run(const Operator& op, const at::Tensor& out, bool given, const at::Tensor& self, int64_t dim,
                  std::optional<at::ScalarType> /*dtype*/) {
    if (given) common_device(op.name.c_str(), {&self, &out});
    at::Tensor made;
    const at::Tensor& input = in_a_row(op, self, out, made);
    const Extent from(input);
    const Extent to(out);
    Call call(op, device_of(self.device()));
    call.tensor(0, input, from.sizes, from.strides);
    call.integer(1, c10::maybe_wrap_dim(dim, self.dim()));
    give_output(call, out, given, to.sizes, to.strides);
    return call.submit();
  }
};

// ---- Of all elements, as reductions along one dimension ----------------------------------------------------------

using ProductAlong = Structured<ops::prod_dim_int, meta::structured_prod_dim_int, ReduceOne>;
using AnyAlong = Structured<ops::any_dim, meta::structured_any_dim, ReduceOne>;

at::Tensor prod_all(const at::Tensor& self, std::optional<at::ScalarType> dtype) {
  return ProductAlong::functional(self.reshape(-1), 0, /*keepdim=*/false, dtype);
}
at::Tensor any_all(const at::Tensor& self) { return AnyAlong::functional(self.reshape(-1), 0, /*keepdim=*/false); }
at::Tensor& any_all_out(const at::Tensor& self, at::Tensor& out) {
  return AnyAlong::out<ops::any_out>(self.reshape(-1), 0, /*keepdim=*/false, out);
}

// ---- Variance, which has no shape function -----------------------------------------------------------------------

using Dimlist = at::OptionalIntArrayRef;

bool run_var(const at::Tensor& out, bool given, const at::Tensor& self, Dimlist dims,
             const std::optional<at::Scalar>& correction) {
  const Operator* op = entry_of<ops::var_correction>();
  return op != nullptr && reduce(*op, out, given, self, listed(dims), Give::kList, [&](Call& call) {
           call.number(2, number(correction.value_or(1), FL_DTYPE_NONE));
         });
}

c10::SmallVector<int64_t, 8> reduced_sizes(const at::Tensor& self, Dimlist wanted, bool keepdim) {
  const Dims dims(self.dim(), listed(wanted));
  c10::SmallVector<int64_t, 8> sizes;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (!dims.has(d)) sizes.push_back(self.size(d));
    if (dims.has(d) && keepdim) sizes.push_back(1);
  }
  return sizes;
}

void check_var(const at::Tensor& self) {
  TORCH_CHECK(at::isFloatingType(self.scalar_type()) || at::isComplexType(self.scalar_type()),
              "std and var only support floating point and complex dtypes");
}

at::Tensor var(const at::Tensor& self, Dimlist dims, const std::optional<at::Scalar>& correction, bool keepdim) {
  check_var(self);
  if (!at::isComplexType(self.scalar_type())) {
    at::Tensor out = empty_on(device_of(self.device()), self.scalar_type(), reduced_sizes(self, dims, keepdim));
    if (run_var(out, /*given=*/false, self, dims, correction)) return out;
  }
  return stepped_down<ops::var_correction>(self, dims, correction, keepdim).back().toTensor();
}

at::Tensor& var_out(const at::Tensor& self, Dimlist dims, const std::optional<at::Scalar>& correction, bool keepdim,
                    at::Tensor& out) {
  check_var(self);
  if (!at::isComplexType(self.scalar_type()) && out.scalar_type() == self.scalar_type()) {
    fit_out(out, reduced_sizes(self, dims, keepdim), {}, self.options());
    if (run_var(out, /*given=*/true, self, dims, correction)) return out;
  }
  stepped_down<ops::var_correction_out>(self, dims, correction, keepdim, out);
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<ops::sum_dim_IntList, None, ops::sum_IntList_out, meta::structured_sum_dim_IntList, Reduce>(m);
  structured<ops::mean_dim, None, ops::mean_out, meta::structured_mean_dim, Reduce>(m);
  structured<ops::amax, None, ops::amax_out, meta::structured_amax, Reduce>(m);
  structured<ops::amin, None, ops::amin_out, meta::structured_amin, Reduce>(m);
  structured<ops::argmax, None, ops::argmax_out, meta::structured_argmax, Argmax>(m);
  structured<ops::prod_dim_int, None, ops::prod_int_out, meta::structured_prod_dim_int, ReduceOne>(m);
  structured<ops::any_dim, None, ops::any_out, meta::structured_any_dim, ReduceOne>(m);
  structured<ops::cumsum, ops::cumsum_, ops::cumsum_out, meta::structured_cumsum, Scan>(m);
  m.impl("prod", &prod_all);
  m.impl("any", &any_all);
  m.impl("any.all_out", &any_all_out);
  m.impl("var.correction", &var);
  m.impl("var.correction_out", &var_out);
}

}  // namespace
}  // namespace torch_fl::fast
