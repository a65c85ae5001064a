#include "route.h"

#include <algorithm>
#include <cstring>

namespace torch_fl {

Policy policy;

namespace {

constexpr uint32_t kDtypes = 32;  // FL_DTYPE_* that the index by dtype has room for

bool is_f32_product(const Operator& op, DtypeRow row) {
  return dtype_of(row, 0) == FL_DTYPE_F32 &&
         (op.name == "aten::mm" || op.name == "aten::bmm" || op.name == "aten::addmm");
}

// Whether the user's wishes admit the kernel. Tensors play no part.
bool admitted(const Operator& op, DtypeRow row, const fl_kernel& kernel) noexcept {
  if (kernel.tier == FL_TIER_FAST && !policy.admit_fast.load(std::memory_order_relaxed)) {
    if (!is_f32_product(op, row) || policy.admits_fast_f32_products == nullptr || !policy.admits_fast_f32_products())
      return false;
  }
  if ((kernel.flags & FL_KERNEL_DETERMINISTIC) == 0) {
    if (policy.deterministic.load(std::memory_order_relaxed)) return false;
    if (policy.wants_deterministic != nullptr && policy.wants_deterministic()) return false;
  }
  return true;
}

template <class Visit>  // bool(const fl_tensor&): false ends the walk
bool all_tensors(const fl_call& call, Visit&& visit) {
  for (uint32_t i = 0; i < call.n_outs; ++i)
    if (!visit(*call.outs[i])) return false;
  for (uint32_t i = 0; i < call.n_args; ++i) {
    const fl_arg& arg = call.args[i];
    if (arg.tag == FL_TAG_TENSOR && !visit(*arg.value.tensor)) return false;
    if (arg.tag != FL_TAG_TENSOR_LIST) continue;
    for (uint32_t k = 0; k < arg.count; ++k)
      if (arg.value.tensors[k] != nullptr && !visit(*arg.value.tensors[k])) return false;
  }
  return true;
}

// Strides of a dense tensor whose dimensions lie in memory in the given order, innermost first; size-1 dimensions may
// have any stride.
bool dense_in_order(const fl_tensor& tensor, const uint32_t* innermost_first) noexcept {
  int64_t expected = 1;
  for (uint32_t i = 0; i < tensor.ndim; ++i) {
    uint32_t d = innermost_first[i];
    if (tensor.sizes[d] == 1) continue;
    if (tensor.strides[d] != expected) return false;
    expected *= tensor.sizes[d];
  }
  return true;
}

bool is_contiguous(const fl_tensor& tensor) noexcept {
  int64_t expected = 1;
  for (uint32_t d = tensor.ndim; d-- > 0;) {
    if (tensor.sizes[d] == 1) continue;
    if (tensor.strides[d] != expected) return false;
    expected *= tensor.sizes[d];
  }
  return true;
}

bool is_dense(const fl_tensor& tensor) noexcept {
  constexpr uint32_t kMost = 64;
  if (tensor.ndim > kMost) return false;
  uint32_t order[kMost];
  for (uint32_t d = 0; d < tensor.ndim; ++d) order[d] = d;
  auto outside = [&](uint32_t a, uint32_t b) {
    int64_t stride_a = tensor.sizes[a] == 1 ? 0 : tensor.strides[a];
    int64_t stride_b = tensor.sizes[b] == 1 ? 0 : tensor.strides[b];
    return stride_a < stride_b;
  };
  std::stable_sort(order, order + tensor.ndim, outside);
  return dense_in_order(tensor, order);
}

bool layouts_fit(uint32_t admitted_layouts, const fl_call& call) noexcept {
  if (admitted_layouts & FL_LAYOUT_STRIDED) return true;
  return all_tensors(call, [&](const fl_tensor& tensor) { return (layouts_of(tensor) & admitted_layouts) != 0; });
}

bool fits(const fl_kernel& kernel, const Demand& demand) noexcept {
  if (demand.max_ndim > kernel.max_ndim) return false;
  if (demand.has_number && (kernel.flags & FL_KERNEL_TAKES_SCALAR) == 0) return false;
  if (demand.aliases && (kernel.flags & FL_KERNEL_INPLACE_OK) == 0) return false;
  if (kernel.data_align > 1 && (demand.addresses & (kernel.data_align - 1)) != 0) return false;
  return layouts_fit(kernel.layouts, *demand.call);
}

}  // namespace

uint32_t layouts_of(const fl_tensor& tensor) noexcept {
  static const uint32_t channels_last_2d[] = {1, 3, 2, 0};
  static const uint32_t channels_last_3d[] = {1, 4, 3, 2, 0};
  uint32_t layouts = FL_LAYOUT_STRIDED;
  if (tensor.numel == 0) return ~0u;
  if (is_contiguous(tensor)) layouts |= FL_LAYOUT_CONTIGUOUS | FL_LAYOUT_PERMUTED;
  if (tensor.ndim == 4 && dense_in_order(tensor, channels_last_2d))
    layouts |= FL_LAYOUT_CHANNELS_LAST_2D | FL_LAYOUT_PERMUTED;
  if (tensor.ndim == 5 && dense_in_order(tensor, channels_last_3d))
    layouts |= FL_LAYOUT_CHANNELS_LAST_3D | FL_LAYOUT_PERMUTED;
  if ((layouts & FL_LAYOUT_PERMUTED) == 0 && is_dense(tensor)) layouts |= FL_LAYOUT_PERMUTED;
  return layouts;
}

RouteTable::RouteTable(Device&) : entries_(new Entry[size_t(operator_count())]), n_entries_(operator_count()) {}

RouteTable::~RouteTable() = default;

void RouteTable::read(const fl_kernel_table& table) {
  for (uint32_t i = 0; i < table.count; ++i) {
    const char* at = reinterpret_cast<const char*>(table.entries) + size_t(i) * table.entry_stride;
    const auto* kernel = reinterpret_cast<const fl_kernel*>(at);
    const Operator* op = find_operator(kernel->op);
    if (op == nullptr || op->id >= n_entries_ || op->revision != kernel->revision) continue;
    if (kernel->tier > FL_TIER_FAST || int(kernel->n_types) != op->n_types) continue;
    for (uint32_t r = 0; r < kernel->n_rows; ++r) {
      const char* row_at = reinterpret_cast<const char*>(kernel->rows) + size_t(r) * kernel->row_stride;
      DtypeRow row;
      std::memcpy(&row, reinterpret_cast<const fl_kernel_row*>(row_at)->dtypes, sizeof row);  // little-endian by rule
      if (op->has_row(row)) entries_[op->id].candidates.push_back({row, kernel});
    }
  }
  for (int id = 0; id < n_entries_; ++id) index(entries_[id]);
}

void RouteTable::index(Entry& entry) {
  auto before = [](const Candidate& a, const Candidate& b) {
    if (a.row != b.row) {
      if (dtype_of(a.row, 0) != dtype_of(b.row, 0)) return dtype_of(a.row, 0) < dtype_of(b.row, 0);
      return a.row < b.row;
    }
    if (a.kernel->priority != b.kernel->priority) return a.kernel->priority > b.kernel->priority;
    return std::strcmp(a.kernel->variant, b.kernel->variant) < 0;
  };
  std::sort(entry.candidates.begin(), entry.candidates.end(), before);
  for (size_t i = 0; i < entry.candidates.size(); ++i) {
    uint32_t dtype = dtype_of(entry.candidates[i].row, 0);
    if (dtype >= kDtypes) continue;
    if (entry.last[dtype] == 0) entry.first[dtype] = uint16_t(i);
    entry.last[dtype] = uint16_t(i + 1);
  }
}

const fl_kernel* RouteTable::select(const Operator& op, DtypeRow row, const Demand* demand,
                                    const fl_kernel* previous) const noexcept {
  const Entry& entry = entries_[op.id];
  uint32_t dtype = dtype_of(row, 0);
  if (dtype >= kDtypes || entry.disabled.load(std::memory_order_relaxed)) return nullptr;
  bool passed = previous == nullptr;
  for (uint32_t i = entry.first[dtype]; i < entry.last[dtype]; ++i) {
    const Candidate& candidate = entry.candidates[i];
    if (candidate.row != row) continue;
    if (!passed) {
      passed = candidate.kernel == previous;
      continue;
    }
    if (!admitted(op, row, *candidate.kernel)) continue;
    if (demand == nullptr || fits(*candidate.kernel, *demand)) return candidate.kernel;
  }
  return nullptr;
}

Counters& RouteTable::counters(const Operator& op) noexcept { return entries_[op.id].counters; }

void RouteTable::disable(const Operator& op, bool disabled) noexcept {
  entries_[op.id].disabled.store(disabled, std::memory_order_relaxed);
}

}  // namespace torch_fl
