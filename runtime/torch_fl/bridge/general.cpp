#include "general.h"

#include <deque>
#include <memory>

#include <ATen/core/stack.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TypeProperties.h>
#include <torch/library.h>

#include "binding.h"
#include "call.h"
#include "canonical.h"
#include "convert.h"
#include "elementwise.h"
#include "factories.h"
#include "fallback.h"
#include "kept_dims.h"
#include "shape_cache.h"

namespace torch_fl {

namespace {

c10::ScalarType result_type(const std::vector<at::Tensor>& tensors) {
  at::native::ResultTypeState state;
  for (const at::Tensor& tensor : tensors) state = at::native::update_result_type_state(tensor, state);
  return at::native::result_type(state);
}

// One call on its way from the stack to a kernel. Nothing has happened to the stack when serve() gives false.
class GeneralCall {
 public:
  GeneralCall(const Binding& binding, c10::ArrayRef<c10::IValue> arguments, Device& device)
      : binding_(binding), op_(*binding.op), arguments_(arguments), device_(device) {}

  bool serve() {
    for (size_t i : binding_.at_default)
      if (!(arguments_[i] == *binding_.functional.schema().arguments()[i].default_value())) return false;
    read_tensors();
    Counters& counters = device_.routes().counters(op_);
    shapes_ = output_shapes(binding_.functional, arguments_.slice(0, binding_.n_arguments), counters);
    if (shapes_ == nullptr || shapes_->size() != op_.outs.size()) return false;
    if (!promote() || !give_outputs()) return false;
    return op_.op_class == "pointwise" && op_.outs.size() == 1 ? serve_pointwise() : serve_shaped();
  }

  const std::vector<at::Tensor>& outputs() const { return outputs_; }

 private:
  const c10::IValue* value_of(size_t slot) const {
    const int index = binding_.arguments[slot];
    return index < 0 || arguments_[size_t(index)].isNone() ? nullptr : &arguments_[size_t(index)];
  }

  // Tensors by slot; lists by slot.
  void read_tensors() {
    tensors_.resize(op_.slots.size());
    for (size_t slot = 0; slot < op_.slots.size(); ++slot) {
      const c10::IValue* value = value_of(slot);
      if (value == nullptr) continue;
      if (value->isTensor() && value->toTensor().defined()) tensors_[slot] = {value->toTensor()};
      if (value->isTensorList()) tensors_[slot] = value->toTensorVector();
      if (value->isOptionalTensorList())
        for (const auto& each : value->toOptionalTensorVector()) tensors_[slot].push_back(each.value_or(at::Tensor()));
    }
  }

  // The dtype of each type variable: the output's where one has it, else what its tensors promote to.
  bool promote() {
    for (int variable = 0; variable < op_.n_types; ++variable) {
      uint32_t dtype = FL_DTYPE_NONE;
      for (size_t i = 0; i < op_.outs.size(); ++i)
        if (op_.outs[i].is_variable() && op_.outs[i].code == variable) dtype = fl_dtype((*shapes_)[i].dtype);
      if (dtype == FL_DTYPE_NONE) dtype = promoted(variable);
      row_ |= row_of(dtype, variable);
    }
    if (op_.has_row(row_)) return true;
    // `dtype=`: torch casts the input first where it has no kernel from one to the other.
    DtypeRow cast_first = 0;
    for (int variable = 0; variable < op_.n_types; ++variable)
      cast_first |= row_of(fl_dtype((*shapes_)[0].dtype), variable);
    if (!op_.has_row(cast_first)) return false;
    row_ = cast_first;
    return true;
  }

  uint32_t promoted(int variable) const {
    std::vector<at::Tensor> all;
    for (size_t slot = 0; slot < op_.slots.size(); ++slot) {
      if (!op_.slots[slot].type.is_variable() || op_.slots[slot].type.code != variable) continue;
      for (const at::Tensor& tensor : tensors_[slot])
        if (tensor.defined()) all.push_back(tensor);
    }
    return all.empty() ? uint32_t(FL_DTYPE_NONE) : fl_dtype(result_type(all));
  }

  bool give_outputs() {
    for (size_t i = 0; i < shapes_->size(); ++i) {
      const OutputShape& shape = (*shapes_)[i];
      if (binding_.form == SchemaForm::kFunctional) {
        outputs_.push_back(empty_on(device_, shape.dtype, shape.sizes, shape.strides));
        continue;
      }
      const size_t index = binding_.form == SchemaForm::kInplace ? 0 : binding_.n_arguments + i;
      const at::Tensor& out = arguments_[index].toTensor();
      const bool castable = op_.op_class == "pointwise" && c10::canCast(shape.dtype, out.scalar_type());
      if (out.device() != torch_device(device_.index)) return false;
      if (out.scalar_type() != shape.dtype && !castable) return false;
      if (binding_.form == SchemaForm::kInplace && out.sizes() != c10::IntArrayRef(shape.sizes)) return false;
      if (binding_.form == SchemaForm::kOut && at::native::resize_output(out, shape.sizes))
        out.as_strided_(shape.sizes, shape.strides);
      outputs_.push_back(out);
    }
    return true;
  }

  bool given() const { return binding_.form != SchemaForm::kFunctional; }

  // ---- Pointwise operators ---------------------------------------------------------------------------------------

  bool serve_pointwise() {
    std::vector<Argument> args(op_.slots.size());
    std::deque<at::Scalar> numbers;
    for (size_t slot = 0; slot < args.size(); ++slot) {
      const c10::IValue* value = value_of(slot);
      if (value == nullptr || (value->isTensor() && !value->toTensor().defined())) continue;
      if (value->isTensor()) args[slot] = argument(tensors_[slot][0]);
      else if (value->isString()) args[slot] = argument(std::string_view(value->toStringRef()));
      else if (takes_number(op_.slots[slot]) && value->isScalar())
        args[slot] = argument(numbers.emplace_back(value->toScalar()));
      else if (value->isInt()) args[slot] = argument(value->toInt());
      else if (value->isBool()) args[slot] = argument(value->toBool());
      else if (value->isDouble()) args[slot] = argument(value->toDouble());
      else return false;
    }
    return run_elementwise(op_, args.data(), row_, outputs_[0], given());
  }

  static bool takes_number(const Slot& slot) { return slot.kind == SlotKind::kScalar || slot.kind == SlotKind::kTensor; }

  // ---- Others ----------------------------------------------------------------------------------------------------

  bool serve_shaped() {
    Call call(op_, device_);
    for (const std::vector<at::Tensor>& each : tensors_) {
      if (each.empty() || !each[0].defined()) continue;
      ndim_ = each[0].dim();
      break;
    }
    for (size_t slot = 0; slot < op_.slots.size(); ++slot)
      if (!give(call, int(slot))) return false;
    for (const at::Tensor& out : outputs_) {
      if (op_.op_class == "reduction" && !dims_.empty()) {
        const KeptDims& view = kept_.emplace_back(out, ndim_, dims_.back());
        give_output(call, out, given(), view.sizes(), view.strides());
      } else if (binding_.has_dims) {
        const Extent view(out);
        give_output(call, out, given(), view.sizes, view.strides);
      } else {
        give_output(call, out, given());
      }
    }
    for (int variable = 0; variable < op_.n_types; ++variable) call.bind(variable, dtype_of(row_, variable));
    return call.submit();
  }

  bool give(Call& call, int index) {
    const Slot& slot = op_.slots[size_t(index)];
    const c10::IValue* value = value_of(size_t(index));
    if (value == nullptr && slot.kind == SlotKind::kScalar && !slot.optional) {
      call.number(index, number(slot.absent, slot.type.under(row_)));
      return true;
    }
    if (value == nullptr && slot.kind != SlotKind::kRng && slot.rule != SlotRule::kDims) {
      call.none(index);
      return slot.optional;
    }
    switch (slot.kind) {
      case SlotKind::kTensor:
      case SlotKind::kTensorList:
        return give_tensors(call, index);
      case SlotKind::kScalar:
        if (!value->isScalar() || value->isComplexDouble()) return false;
        call.number(index, of_numbers_alone() ? number_for_tensor(value->toScalar(), slot.type.under(row_))
                                              : number(value->toScalar(), slot.type.under(row_)));
        return true;
      case SlotKind::kInt:
        if (!value->isInt()) return false;
        call.integer(index, slot.rule == SlotRule::kDim ? named_dim(value->toInt()) : value->toInt());
        return true;
      case SlotKind::kBool:
        if (!value->isBool()) return false;
        call.boolean(index, value->toBool());
        return true;
      case SlotKind::kFloat:
        if (!value->isDouble()) return false;
        call.floating(index, value->toDouble());
        return true;
      case SlotKind::kIntList:
        return give_integers(call, index, value);
      case SlotKind::kString:
        return value->isString() && call.plain(index, argument(std::string_view(value->toStringRef())), FL_DTYPE_NONE);
      case SlotKind::kDtype:
        if (!value->isInt()) return false;
        call.dtype(index, fl_dtype(value->toScalarType()));
        return true;
      case SlotKind::kRng:
        if (value != nullptr) generator_ = value->toGenerator();
        call.rng(index, generator_);
        return true;
    }
    return false;
  }

  // A range: torch computes it in a wider dtype and casts what comes of it, so that its end may lie beyond the dtype.
  bool of_numbers_alone() const {
    for (const c10::IValue& value : arguments_.slice(0, binding_.n_arguments))
      if (value.isTensor() || value.isTensorList()) return false;
    return true;
  }

  bool give_tensors(Call& call, int index) {
    const Slot& slot = op_.slots[size_t(index)];
    std::vector<at::Tensor>& tensors = tensors_[size_t(index)];
    const uint32_t dtype = slot.type.under(row_);
    for (at::Tensor& tensor : tensors) {
      if (!tensor.defined()) continue;
      if (tensor.device() != torch_device(device_.index)) return false;
      if (dtype != FL_DTYPE_NONE && fl_dtype(tensor.scalar_type()) != dtype) tensor = cast(device_, tensor, dtype);
      if (slot.rule == SlotRule::kExpand) tensor = tensor.expand(outputs_[0].sizes());
    }
    if (slot.kind == SlotKind::kTensorList) {
      c10::SmallVector<const at::TensorBase*, 8> list;
      for (const at::Tensor& tensor : tensors) list.push_back(tensor.defined() ? &tensor : nullptr);
      call.tensors(index, list);
      return true;
    }
    if (tensors.empty() || !tensors[0].defined()) {
      call.none(index);
      return slot.optional;
    }
    if (!binding_.has_dims) {
      call.tensor(index, tensors[0]);
      return true;
    }
    const Extent view(tensors[0]);
    call.tensor(index, tensors[0], view.sizes, view.strides);
    return true;
  }

  int64_t named_dim(int64_t dim) {
    const Dims& dims = dims_.emplace_back(ndim_, dim);
    return dims.list()[0];
  }

  bool give_integers(Call& call, int index, const c10::IValue* value) {
    const SlotRule rule = op_.slots[size_t(index)].rule;
    if (value != nullptr && !value->isIntList() && !value->isInt()) return false;
    std::vector<int64_t>& list = lists_.emplace_back();
    if (value != nullptr) list = value->isInt() ? std::vector<int64_t>{value->toInt()} : value->toIntVector();
    if (rule == SlotRule::kDims) {
      if (list.empty() && op_.op_class != "reduction") return false;  // none, there
      call.integers(index, dims_.emplace_back(ndim_, list).list());
      return true;
    }
    if (rule == SlotRule::kSpatial && list.size() == 1 && ndim_ > 3) list.resize(size_t(ndim_ - 2), list[0]);
    if (rule == SlotRule::kWindow) {
      if (list.empty() && lists_.size() > 1) list = lists_[lists_.size() - 2];
      if (list.size() == 1) list.resize(2, list[0]);
    }
    if (rule == SlotRule::kPad) {
      for (int64_t each : list)
        if (each < 0) return false;
      list.resize(size_t(2 * ndim_), 0);
    }
    call.integers(index, list);
    return true;
  }

  const Binding& binding_;
  const Operator& op_;
  const c10::ArrayRef<c10::IValue> arguments_;
  Device& device_;
  std::shared_ptr<const std::vector<OutputShape>> shapes_;
  DtypeRow row_ = 0;
  int64_t ndim_ = 0;  // of the first tensor
  std::vector<std::vector<at::Tensor>> tensors_;
  std::vector<at::Tensor> outputs_;
  std::optional<at::Generator> generator_;
  // What a Call points to.
  std::deque<Dims> dims_;
  std::deque<KeptDims> kept_;
  std::deque<std::vector<int64_t>> lists_;
};

// The device that a call is for: of its first tensor there, else the one that it names. Null: none.
Device* device_for(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& value : arguments) {
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().device().type() == kFl)
      return &device_of(value.toTensor().device());
    if (value.isTensorList())
      for (const at::Tensor& tensor : value.toTensorVector())
        if (tensor.defined() && tensor.device().type() == kFl) return &device_of(tensor.device());
  }
  for (const c10::IValue& value : arguments)
    if (value.isDevice() && value.toDevice().type() == kFl) return &device_of(value.toDevice());
  return nullptr;
}

class GeneralKernel final : public c10::OperatorKernel {
 public:
  explicit GeneralKernel(Binding binding) : binding_(std::move(binding)) {}

  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet, c10::Stack* stack) {
    const size_t n = handle.schema().arguments().size();
    const c10::ArrayRef<c10::IValue> arguments = torch::jit::last(*stack, n);
    if (Device* device = device_for(arguments)) {
      GeneralCall call(binding_, arguments, *device);
      if (call.serve()) {
        torch::jit::drop(*stack, n);
        for (const at::Tensor& out : call.outputs()) stack->push_back(out);
        return;
      }
    }
    step_down(handle, stack, kNoKernel);
  }

 private:
  Binding binding_;
};

// Lives as long as the process: kernels are never taken away.
torch::Library& library() {
  static auto& leaked =
      *new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  return leaked;
}

}  // namespace

std::string add_general_kernel(const Operator& op, bool replace) {
  std::string why_not;
  for (const auto& [handle, binding] : bindings_of(op, why_not)) {
    if (!replace && handle.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) continue;
    library().impl(c10::toString(handle.operator_name()).c_str(),
                   torch::CppFunction::makeFromBoxedFunctor(std::make_unique<GeneralKernel>(binding)));
  }
  return why_not;
}

}  // namespace torch_fl
