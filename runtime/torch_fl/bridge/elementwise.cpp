#include "elementwise.h"

#include <algorithm>

#include "canonical.h"
#include "compat.h"
#include "convert.h"
#include "copy.h"
#include "factories.h"

namespace torch_fl {

namespace {

constexpr int kOperands = 8;  // an output and seven inputs
constexpr int64_t kDims = 64;

bool is_number_tensor(const at::Tensor& tensor) { return tensor.is_cpu() && tensor.dim() == 0; }

// Whether a number of this type leaves a tensor of `dtype` its dtype.
bool keeps_dtype(c10::ScalarType number, c10::ScalarType dtype) {
  if (c10::isFloatingType(dtype)) return !c10::isComplexType(number);
  if (c10::isIntegralType(dtype, /*includeBool=*/false)) return c10::isIntegralType(number, /*includeBool=*/false);
  return dtype == c10::ScalarType::Bool && number == c10::ScalarType::Bool;
}

// ---- The shortcut ------------------------------------------------------------------------------------------------

// What run_flat finds out about the tensors of a call; false where they don't lie the same way.
struct Flat {
  const at::Tensor* lead = nullptr;
  c10::ScalarType dtype = c10::ScalarType::Undefined;  // of type variable 0
  bool has_number = false;

  bool take(const Slot& slot, const at::Tensor& tensor) {
    if (FL_HAS_DIMNAMES(tensor)) return false;
    if (is_number_tensor(tensor)) {
      has_number = true;
      return slot.scalar;
    }
    const c10::ScalarType type = tensor.scalar_type();
    if (slot.type.is_fixed()) {
      if (fl_dtype(type) != slot.type.under(0)) return false;
    } else if (dtype == c10::ScalarType::Undefined) {
      dtype = type;
    } else if (dtype != type) {
      return false;
    }
    if (lead == nullptr) {
      lead = &tensor;
      return tensor.is_privateuseone() && tensor.is_non_overlapping_and_dense();
    }
    return tensor.sizes() == lead->sizes() && tensor.strides() == lead->strides() && tensor.device() == lead->device();
  }
};

// A 0-dimensional tensor on the CPU counts as a number, which weighs less than any tensor with dimensions. Bools are left
// to shape functions, some of which refuse them.
bool keeps_dtype(const at::Tensor& number, const Flat& flat) {
  bool outweighed = flat.lead->dim() > 0 || number.unsafeGetTensorImpl()->is_wrapped_number();
  return outweighed && number.scalar_type() != c10::ScalarType::Bool && keeps_dtype(number.scalar_type(), flat.dtype);
}

bool shares_storage(const at::Tensor& a, const at::Tensor& b) {
  return a.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() ==
         b.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

}  // namespace

bool run_flat(const Operator& op, const Argument* args, at::Tensor& out) {
  const int n = int(op.slots.size());
  Flat flat;
  for (int i = 0; i < n; ++i)
    if (args[i].kind == Argument::Kind::kTensor && !flat.take(op.slots[size_t(i)], *args[i].tensor)) return false;
  if (flat.lead == nullptr || flat.dtype == c10::ScalarType::Undefined) return false;
  if (flat.lead->numel() == 0) return false;  // no kernel is asked whether it has this dtype

  const uint32_t dtype = fl_dtype(flat.dtype);
  const bool in_place = out.defined();
  Device& device = device_of(flat.lead->device());
  const c10::TensorImpl& lead = *flat.lead->unsafeGetTensorImpl();
  const int64_t numel = lead.numel();
  const int64_t one = 1;
  const c10::IntArrayRef sizes(numel);
  const c10::IntArrayRef strides(one);

  Call call(op, device);
  for (int i = 0; i < n; ++i) {
    const Slot& slot = op.slots[size_t(i)];
    const Argument& arg = args[i];
    if (arg.kind != Argument::Kind::kTensor) {
      if (arg.kind == Argument::Kind::kNumber) {
        if (!keeps_dtype(arg.number->type(), flat.dtype)) return false;
        if (slot.kind == SlotKind::kTensor && !slot.scalar) return false;
        if (arg.number->isBoolean() && dtype != FL_DTYPE_BOOL) return false;
      }
      if (!call.plain(i, arg, dtype)) return false;
    } else if (flat.has_number && is_number_tensor(*arg.tensor)) {
      if (!keeps_dtype(*arg.tensor, flat)) return false;
      call.number(i, number_for_tensor(*arg.tensor, dtype));
    } else {
      if (in_place && arg.tensor != &out && shares_storage(*arg.tensor, out) && !arg.tensor->is_same(out)) return false;
      call.tensor(i, *arg.tensor, sizes, strides);
    }
  }

  const uint32_t out_dtype = op.outs[0].under(row_of(dtype, 0));
  if (in_place) {
    if (fl_dtype(out.scalar_type()) != out_dtype) return false;
    call.given_output(out, sizes, strides);
  } else {
    const c10::ScalarType type = out_dtype == dtype ? flat.dtype : scalar_type(out_dtype);
    if (type == c10::ScalarType::Undefined) return false;
    out = lead.is_contiguous() ? empty_on(device, type, lead.sizes())
                               : empty_on(device, type, lead.sizes(), lead.strides());
    call.output(out, sizes, strides);
  }
  return call.submit();
}

// ---- The general case --------------------------------------------------------------------------------------------

namespace {

// Operands under the output's sizes; dimensions outermost first. Operand 0 is the output.
struct Walk {
  int n = 0;
  int64_t dims = 0;
  int64_t sizes[kDims];
  int64_t strides[kOperands][kDims];

  explicit Walk(const at::Tensor& out) : dims(out.dim()) {
    std::copy(out.sizes().begin(), out.sizes().end(), sizes);
    add(out);
  }

  // False where the tensor cannot be expanded to the output's sizes.
  bool add(const at::Tensor& tensor) {
    if (n == kOperands || tensor.dim() > dims) return false;
    const int64_t lead = dims - tensor.dim();
    std::fill(strides[n], strides[n] + lead, 0);
    for (int64_t d = 0; d < tensor.dim(); ++d) {
      if (tensor.size(d) != sizes[lead + d] && tensor.size(d) != 1) return false;
      strides[n][lead + d] = tensor.size(d) == 1 ? 0 : tensor.stride(d);
    }
    ++n;
    return true;
  }

  void swap(int64_t a, int64_t b) {
    std::swap(sizes[a], sizes[b]);
    for (int k = 0; k < n; ++k) std::swap(strides[k][a], strides[k][b]);
  }

  bool merges(int64_t outer, int64_t inner) const {
    for (int k = 0; k < n; ++k)
      if (strides[k][outer] != strides[k][inner] * sizes[inner]) return false;
    return true;
  }

  // As few dimensions as possible, in the order of the output's memory.
  void collapse() {
    for (int64_t d = 1; d < dims; ++d)
      for (int64_t k = d; k > 0 && strides[0][k] > strides[0][k - 1]; --k) swap(k, k - 1);
    int64_t kept = 0;
    for (int64_t d = 0; d < dims; ++d) {
      if (sizes[d] == 1) continue;
      if (kept > 0 && merges(kept - 1, d)) {
        sizes[kept - 1] *= sizes[d];
        for (int k = 0; k < n; ++k) strides[k][kept - 1] = strides[k][d];
        continue;
      }
      sizes[kept] = sizes[d];
      for (int k = 0; k < n; ++k) strides[k][kept] = strides[k][d];
      ++kept;
    }
    dims = kept;
  }

  c10::IntArrayRef shape() const { return {sizes, size_t(dims)}; }
  c10::IntArrayRef strides_of(int k) const { return {strides[k], size_t(dims)}; }
};

}  // namespace

bool run_elementwise(const Operator& op, const Argument* args, DtypeRow row, const at::Tensor& out, bool given) {
  if (out.numel() == 0) return true;
  if (out.dim() > kDims || !op.has_row(row)) return false;  // numbers, too, are only of a row's dtypes
  Device& device = device_of(out.device());
  const int n = int(op.slots.size());
  Call call(op, device);

  at::Tensor made[kOperands];  // casts, and numbers as tensors
  const at::Tensor* operands[kOperands];
  int slots[kOperands];
  const uint32_t wanted = op.outs[0].under(row);
  const bool apart = fl_dtype(out.scalar_type()) != wanted;  // the output's dtype is one that no kernel gives
  if (apart) {
    if (scalar_type(wanted) == c10::ScalarType::Undefined) return false;
    made[0] = empty_on(device, scalar_type(wanted), out.sizes());
  }
  operands[0] = apart ? &made[0] : &out;
  Walk walk(*operands[0]);

  for (int i = 0; i < n; ++i) {
    const Slot& slot = op.slots[size_t(i)];
    const Argument& arg = args[i];
    const uint32_t dtype = slot.type.under(row);
    const bool is_tensor = arg.kind == Argument::Kind::kTensor && !is_number_tensor(*arg.tensor);
    if (!is_tensor && (slot.kind != SlotKind::kTensor || arg.kind == Argument::Kind::kNone)) {
      if (!call.plain(i, arg, dtype)) return false;
      continue;
    }
    if (!is_tensor && slot.scalar) {
      call.number(i, arg.kind == Argument::Kind::kNumber ? number_for_tensor(*arg.number, dtype)
                                                         : number_for_tensor(*arg.tensor, dtype));
      continue;
    }
    if (walk.n == kOperands) return false;
    at::Tensor& fresh = made[walk.n];
    if (!is_tensor) {
      if (arg.kind == Argument::Kind::kText) return false;
      fresh = filled(device,
                     arg.kind == Argument::Kind::kNumber ? number_for_tensor(*arg.number, dtype)
                                                         : number_for_tensor(*arg.tensor, dtype),
                     dtype, {});
    } else if (fl_dtype(arg.tensor->scalar_type()) != dtype) {
      fresh = cast(device, *arg.tensor, dtype);
    }
    operands[walk.n] = fresh.defined() ? &fresh : arg.tensor;
    slots[walk.n] = i;
    if (!walk.add(*operands[walk.n])) return false;
  }

  walk.collapse();
  for (int k = 1; k < walk.n; ++k) call.tensor(slots[k], *operands[k], walk.shape(), walk.strides_of(k));
  if (given && !apart)
    call.given_output(out, walk.shape(), walk.strides_of(0));
  else
    call.output(*operands[0], walk.shape(), walk.strides_of(0));
  if (!call.submit()) return false;
  if (apart) copy_tensor(out, made[0], /*non_blocking=*/false);
  return true;
}

}  // namespace torch_fl
