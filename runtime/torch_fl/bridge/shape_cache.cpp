#include "shape_cache.h"

#include <cstring>
#include <mutex>
#include <unordered_map>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/SmallVector.h>

#include "convert.h"
#include "core/profile.h"

namespace torch_fl {

namespace {

using Shapes = std::shared_ptr<const std::vector<OutputShape>>;  // none: torch cannot say

// ---- Kinds of calls as words -------------------------------------------------------------------------------------

class ShapeKey {
 public:
  // False where the call is of no kind that can be told from others.
  bool add(const c10::IValue& value) {
    if (value.isTensor()) {
      add(value.toTensor());
    } else if (value.isInt()) {
      add(1, uint64_t(value.toInt()));
    } else if (value.isBool()) {
      add(2, value.toBool());
    } else if (value.isDouble()) {
      add(3, bits(value.toDouble()));
    } else if (value.isComplexDouble()) {
      add(4, bits(value.toComplexDouble().real()));
      word(bits(value.toComplexDouble().imag()));
    } else if (value.isNone()) {
      word(5);
    } else if (value.isString()) {
      add(value.toStringRef());
    } else if (value.isDevice()) {
      add(7, uint64_t(value.toDevice().type()) << 8 | uint8_t(value.toDevice().index()));
    } else if (value.isGenerator()) {
      word(8);  // plays no part
    } else if (value.isList()) {
      const c10::ArrayRef<c10::IValue> list = value.toListRef();
      add(9, list.size());
      for (const c10::IValue& each : list)
        if (!add(each)) return false;
    } else {
      return add_typed_list(value);
    }
    return true;
  }

  void word(uint64_t value) { words_.push_back(value); }

  bool operator==(const ShapeKey& other) const { return words_ == other.words_; }
  size_t hash() const {
    uint64_t mixed = words_.size();
    for (uint64_t each : words_) {
      mixed = (mixed ^ each) * 0x9E3779B97F4A7C15u;
      mixed ^= mixed >> 32;
    }
    return size_t(mixed);
  }

 private:
  static uint64_t bits(double value) {
    uint64_t out;
    std::memcpy(&out, &value, sizeof out);
    return out;
  }
  void add(uint64_t kind, uint64_t value) {
    word(kind);
    word(value);
  }
  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) return word(10);
    const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    const uint64_t device = uint64_t(tensor.device().type()) << 8 | uint8_t(tensor.device().index());
    word(11 | uint64_t(tensor.scalar_type()) << 8 | uint64_t(impl.is_wrapped_number()) << 15 | device << 16 |
         uint64_t(tensor.dim()) << 40);
    for (int64_t size : tensor.sizes()) word(uint64_t(size));
    for (int64_t stride : tensor.strides()) word(uint64_t(stride));
  }
  void add(const std::string& text) {
    add(6, text.size());
    for (size_t i = 0; i < text.size(); i += 8) {
      uint64_t part = 0;
      std::memcpy(&part, text.data() + i, std::min<size_t>(8, text.size() - i));
      word(part);
    }
  }
  bool add_typed_list(const c10::IValue& value) {
    if (!value.isIntList() && !value.isBoolList() && !value.isDoubleList() && !value.isTensorList()) return false;
    const c10::List<c10::IValue> list = value.toList();
    add(9, list.size());
    for (const c10::IValue& each : list)
      if (!add(each)) return false;
    return true;
  }

  c10::SmallVector<uint64_t, 64> words_;
};

struct HashShapeKey {
  size_t operator()(const ShapeKey& key) const { return key.hash(); }
};

// ---- Kept kinds ----------------------------------------------------------------------------------------------------

// Two generations: what is used moves to the young one; when that is full it becomes the old one, and the old one goes.
class ShapeCache {
 public:
  Shapes find(const ShapeKey& key) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (auto found = young_.find(key); found != young_.end()) return found->second;
    auto found = old_.find(key);
    if (found == old_.end()) return nullptr;
    Shapes shapes = found->second;
    insert(key, shapes);
    return shapes;
  }
  void keep(const ShapeKey& key, const Shapes& shapes) {
    std::lock_guard<std::mutex> lock(mutex_);
    insert(key, shapes);
  }

 private:
  static constexpr size_t kMost = 2048;  // of each generation

  void insert(const ShapeKey& key, const Shapes& shapes) {
    if (young_.size() >= kMost) {
      old_ = std::move(young_);
      young_.clear();
    }
    young_.emplace(key, shapes);
  }

  std::mutex mutex_;
  std::unordered_map<ShapeKey, Shapes, HashShapeKey> young_, old_;
};

ShapeCache& shape_cache() {
  static auto& leaked = *new ShapeCache;
  return leaked;
}

// ---- Torch's word --------------------------------------------------------------------------------------------------

at::Tensor on_meta(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != kFl) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

c10::IValue on_meta(const c10::IValue& value) {
  if (value.isTensor()) return on_meta(value.toTensor());
  if (value.isDevice() && value.toDevice().type() == kFl) return c10::Device(at::kMeta);
  if (value.isGenerator()) return c10::IValue();
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(on_meta(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      list.push_back(tensor.has_value() ? std::optional<at::Tensor>(on_meta(*tensor)) : std::nullopt);
    return list;
  }
  return value;
}

Shapes ask(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::Stack stack;
  for (const c10::IValue& value : arguments) stack.push_back(on_meta(value));
  auto shapes = std::make_shared<std::vector<OutputShape>>();
  try {
    op.callBoxed(stack);
  } catch (const c10::NotImplementedError&) {
    return shapes;
  }
  for (const c10::IValue& result : stack) {
    if (!result.isTensor() || !result.toTensor().defined()) return std::make_shared<std::vector<OutputShape>>();
    const at::Tensor& tensor = result.toTensor();
    shapes->push_back({tensor.scalar_type(), c10::DimVector(tensor.sizes()), c10::DimVector(tensor.strides())});
  }
  return shapes;
}

Shapes if_any(const Shapes& shapes) { return shapes->empty() ? nullptr : shapes; }

}  // namespace

Shapes output_shapes(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments, Counters& counters) {
  ShapeKey key;
  key.word(reinterpret_cast<uintptr_t>(&op.schema()));
  key.word(uint64_t(c10::get_default_dtype_as_scalartype()));
  bool known = true;
  for (const c10::IValue& value : arguments) known = known && key.add(value);
  if (!known) {
    note_shape(false);
    counters.shape_misses.fetch_add(1, std::memory_order_relaxed);
    return if_any(ask(op, arguments));
  }
  Shapes shapes = shape_cache().find(key);
  note_shape(shapes != nullptr);
  (shapes != nullptr ? counters.shape_hits : counters.shape_misses).fetch_add(1, std::memory_order_relaxed);
  if (shapes == nullptr) {
    shapes = ask(op, arguments);
    shape_cache().keep(key, shapes);
  }
  return if_any(shapes);
}

}  // namespace torch_fl
