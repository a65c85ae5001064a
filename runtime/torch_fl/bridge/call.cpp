#include "call.h"

#include <algorithm>
#include <cstring>

#include <ATen/MemoryOverlap.h>
#include <c10/util/irange.h>

#include "core/error.h"
#include "core/profile.h"
#include "generator.h"
#include "plan_cache.h"
#include "wording.h"

namespace torch_fl {

namespace {

template <class Visit>
void each_tensor(const fl_call& call, Visit&& visit) {
  // The tensors are this host's own; const is what a vendor sees.
  auto own = [&](const fl_tensor* tensor) {
    if (tensor != nullptr) visit(const_cast<fl_tensor&>(*tensor));
  };
  for (uint32_t i = 0; i < call.n_outs; ++i) own(call.outs[i]);
  for (uint32_t i = 0; i < call.n_args; ++i) {
    const fl_arg& arg = call.args[i];
    if (arg.tag == FL_TAG_TENSOR) own(arg.value.tensor);
    if (arg.tag != FL_TAG_TENSOR_LIST) continue;
    for (uint32_t k = 0; k < arg.count; ++k) own(arg.value.tensors[k]);
  }
}

// Takes the addresses of a call away for its scope: plan must not see them.
class HiddenAddresses {
 public:
  explicit HiddenAddresses(const fl_call& call) : call_(call) {
    each_tensor(call, [&](fl_tensor& tensor) {
      kept_.push_back({tensor.base, tensor.byte_offset, tensor.base_bytes});
      tensor.base = tensor.byte_offset = tensor.base_bytes = 0;
    });
  }
  ~HiddenAddresses() {
    const Span* place = kept_.data();
    each_tensor(call_, [&](fl_tensor& tensor) {
      tensor.base = place->base;
      tensor.byte_offset = place->byte_offset;
      tensor.base_bytes = place->base_bytes;
      ++place;
    });
  }
  HiddenAddresses(const HiddenAddresses&) = delete;
  HiddenAddresses& operator=(const HiddenAddresses&) = delete;

 private:
  const fl_call& call_;
  c10::SmallVector<Span, 8> kept_;
};

// Memory of the pool for one call; given back in the order of the stream that the call went to.
class Workspace {
 public:
  Workspace(Device& device, Stream& stream, const fl_plan& plan, fl_call& call) : device_(device) {
    call.workspace_bytes = plan.workspace_bytes;
    if (plan.workspace_bytes == 0) return;
    // The pool aligns to alloc_align at least; more is made by taking more.
    uint64_t align = std::max<uint64_t>(plan.workspace_align, 1);
    uint64_t slack = align > device.info.alloc_align ? align - 1 : 0;
    block_ = device.pool().allocate(plan.workspace_bytes + slack, stream);
    uint64_t begin = (block_->base + block_->offset + align - 1) / align * align;
    call.workspace_base = block_->base;
    call.workspace_offset = begin - block_->base;
  }
  ~Workspace() {
    if (block_ != nullptr) device_.pool().release(block_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

 private:
  Device& device_;
  Block* block_ = nullptr;
};

// Bytes from the first element to the end of the last one; 0 without elements.
uint64_t extent_of(const fl_tensor& tensor, uint64_t element_bytes) noexcept {
  if (tensor.numel == 0) return 0;
  uint64_t last = 0;
  for (uint32_t d = 0; d < tensor.ndim; ++d) last += uint64_t(tensor.sizes[d] - 1) * uint64_t(tensor.strides[d]);
  return (last + 1) * element_bytes;
}

uint64_t element_bytes(const fl_tensor& tensor) noexcept { return c10::elementSize(scalar_type(tensor.dtype)); }

bool overlap(const fl_tensor& a, const fl_tensor& b) noexcept {
  if (a.base != b.base) return false;
  uint64_t a_end = a.byte_offset + extent_of(a, element_bytes(a));
  uint64_t b_end = b.byte_offset + extent_of(b, element_bytes(b));
  return a.byte_offset < b_end && b.byte_offset < a_end;
}

bool same(const fl_tensor& a, const fl_tensor& b) noexcept {
  if (a.base != b.base || a.byte_offset != b.byte_offset || a.dtype != b.dtype || a.ndim != b.ndim) return false;
  return std::equal(a.sizes, a.sizes + a.ndim, b.sizes) && std::equal(a.strides, a.strides + a.ndim, b.strides);
}

}  // namespace

void Call::integers(int slot, c10::IntArrayRef values) noexcept {
  fl_arg& arg = set(slot, FL_TAG_INT_LIST);
  arg.count = uint32_t(values.size());
  arg.value.ints = values.data();
}

void Call::text(int slot, const char* value, size_t bytes) noexcept {
  fl_arg& arg = set(slot, FL_TAG_STRING);
  arg.count = uint32_t(bytes);
  arg.value.string = value;
}

void Call::number(int slot, const fl_arg& value) noexcept {
  args_[slot] = value;
  if (op_.slots[size_t(slot)].kind == SlotKind::kTensor) has_number_ = true;
}

void Call::rng(int slot, const std::optional<at::Generator>& generator) noexcept {
  set(slot, FL_TAG_RNG).value.rng = {0, 0};
  rng_slot_ = slot;
  generator_ = &generator;
}

bool Call::plain(int index, const Argument& value, uint32_t dtype) {
  const Slot& slot = op_.slots[size_t(index)];
  switch (value.kind) {
    case Argument::Kind::kNumber:
      number(index, slot.kind == SlotKind::kTensor ? number_for_tensor(*value.number, dtype)
                                                   : torch_fl::number(*value.number, dtype));
      return true;
    case Argument::Kind::kText:
      for (const std::string& choice : slot.choices) {
        if (choice.size() != value.bytes || choice.compare(0, value.bytes, value.text, value.bytes) != 0) continue;
        text(index, choice.data(), choice.size());
        return true;
      }
      return false;
    case Argument::Kind::kInteger:
      integer(index, value.integer);
      return slot.kind == SlotKind::kInt;
    case Argument::Kind::kBoolean:
      boolean(index, value.integer != 0);
      return slot.kind == SlotKind::kBool;
    case Argument::Kind::kFloating:
      floating(index, value.floating);
      return slot.kind == SlotKind::kFloat;
    case Argument::Kind::kNone:
      none(index);
      return slot.optional;
    case Argument::Kind::kTensor:
      break;
  }
  return false;
}

void Call::describe(Described& out, const at::TensorBase& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                    uint32_t flags) {
  Span span = span_of(tensor);
  out.source = &tensor;
  fl_tensor& described = out.tensor;
  described.struct_size = sizeof(fl_tensor);
  described.kind = FL_KIND_TENSOR;
  described.base = span.base;
  described.byte_offset = span.byte_offset;
  described.base_bytes = span.base_bytes;
  described.sizes = sizes.data();
  described.strides = strides.data();
  int64_t numel = 1;
  for (int64_t size : sizes) numel *= size;
  described.numel = numel;
  described.dtype = fl_dtype(tensor.scalar_type());
  described.ndim = uint32_t(sizes.size());
  described.device = device_.vendor_index;
  described.flags = flags;
  addresses_ |= span.base + span.byte_offset;
  max_ndim_ = std::max(max_ndim_, described.ndim);
}

void Call::tensor(int slot, const at::TensorBase& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  Described& described = inputs_[n_inputs_++];
  describe(described, tensor, sizes, strides, FL_TENSOR_READONLY);
  set(slot, FL_TAG_TENSOR).value.tensor = &described.tensor;
  bind(op_.slots[size_t(slot)].type, described.tensor.dtype);
}

void Call::tensors(int slot, c10::ArrayRef<const at::TensorBase*> list) {
  fl_arg& arg = set(slot, FL_TAG_TENSOR_LIST);
  arg.count = uint32_t(list.size());
  arg.value.u = listed_.size();  // until finish(), when the list has its last place
  for (const at::TensorBase* tensor : list) {
    listed_.emplace_back();
    Described& described = listed_.back();
    described.source = nullptr;
    if (tensor == nullptr) continue;
    describe(described, *tensor, tensor->sizes(), tensor->strides(), FL_TENSOR_READONLY);
    bind(op_.slots[size_t(slot)].type, described.tensor.dtype);
  }
}

void Call::output(const at::TensorBase& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  Described& described = outputs_[n_outs_];
  describe(described, tensor, sizes, strides, 0);
  outs_[n_outs_] = &described.tensor;
  bind(op_.outs[size_t(n_outs_)], described.tensor.dtype);
  ++n_outs_;
}

void Call::given_output(const at::TensorBase& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  at::assert_no_internal_overlap(tensor);
  output(tensor, sizes, strides);
  note_overlap(outputs_[n_outs_ - 1].tensor);
}

void Call::note_overlap(const fl_tensor& output) noexcept {
  for (const auto slot : c10::irange(op_.slots.size())) {
    const fl_arg& arg = args_[slot];
    if (arg.tag != FL_TAG_TENSOR || !overlap(*arg.value.tensor, output)) continue;
    if (n_outs_ == 1 && op_.slots[slot].inplace && same(*arg.value.tensor, output))
      aliases_ = true;
    else
      detour_ = true;
  }
  for (const Described& input : listed_)
    if (input.source != nullptr && overlap(input.tensor, output)) detour_ = true;
  for (int i = 0; i < n_outs_ - 1; ++i)
    if (overlap(outputs_[i].tensor, output)) detour_ = true;
}

fl_call Call::finish() noexcept {
  if (!listed_.empty()) {
    for (const Described& each : listed_) listed_pointers_.push_back(each.source != nullptr ? &each.tensor : nullptr);
    for (const auto slot : c10::irange(op_.slots.size()))
      if (args_[slot].tag == FL_TAG_TENSOR_LIST) args_[slot].value.tensors = &listed_pointers_[args_[slot].value.u];
  }
  return {sizeof(fl_call), FL_KIND_CALL, nullptr, args_, outs_, uint32_t(op_.slots.size()), uint32_t(n_outs_), 0, 0, 0, 0};
}

bool Call::submit() {
  fl_call call = finish();
  if (C10_UNLIKELY(nothing_to_do())) return true;
  if (C10_LIKELY(!detour_) && submit_to(call)) return true;
  return policy.native.load(std::memory_order_relaxed) && relay(call);
}

bool Call::submit_as_is() {
  fl_call call = finish();
  if (C10_UNLIKELY(nothing_to_do())) return true;
  return !detour_ && submit_to(call);
}

bool Call::nothing_to_do() const noexcept {
  for (int i = 0; i < n_outs_; ++i)
    if (outputs_[i].tensor.numel != 0) return false;
  return true;
}

bool Call::submit_to(const fl_call& call) {
  if (C10_UNLIKELY(!policy.native.load(std::memory_order_relaxed))) return false;
  RouteTable& routes = device_.routes();
  const Demand demand{&call, max_ndim_, addresses_, has_number_, aliases_};
  const fl_kernel* kernel = routes.select(op_, row_, &demand);
  while (kernel != nullptr && !launch(*kernel, call)) kernel = routes.select(op_, row_, &demand, kernel);
  if (kernel == nullptr) return false;
  routes.counters(op_).native.fetch_add(1, std::memory_order_relaxed);
  note_served(device_, ServedBy::kNative);
  return true;
}

bool Call::launch(const fl_kernel& kernel, const fl_call& call) {
  VendorError error;
  const fl_plan* plan = nullptr;
  fl_plan fresh;
  if (C10_LIKELY(kernel.flags & FL_KERNEL_PLAN_PURE)) plan = find_plan(kernel, device_.handle, call);
  if (plan == nullptr) {
    fresh = {sizeof(fl_plan), FL_KIND_PLAN, 0, 0, 0, 0};
    fl_status status;
    {
      HiddenAddresses hidden(call);
      status = kernel.plan(&kernel, device_.handle, &call, &fresh, error.out());
    }
    if (status == FL_UNIMPLEMENTED) return false;
    check(status, error, device_, [&] { return what(kernel, call, "plan of "); });
    if (kernel.flags & FL_KERNEL_PLAN_PURE) keep_plan(fresh);
    plan = &fresh;
  }

  Stream& stream = current_stream(device_);
  fl_call planned = call;
  planned.plan_token = plan->token;
  if (C10_UNLIKELY(rng_slot_ >= 0)) {
    auto& arg = const_cast<fl_arg&>(call.args[rng_slot_]);  // this host's own
    arg.value.rng = next_random(*generator_, device_, plan->rng_increment);
  }
  Workspace workspace(device_, stream, *plan, planned);
  fl_status status = kernel.run(&kernel, stream.handle(), &planned, error.out());
  if (C10_UNLIKELY(status == FL_OUT_OF_MEMORY)) {
    device_.pool().empty_cache();
    status = kernel.run(&kernel, stream.handle(), &planned, error.out());
  }
  check(status, error, stream, [&] { return what(kernel, call, ""); });
  return true;
}

std::string Call::what(const fl_kernel& kernel, const fl_call& call, const char* step) const {
  return step + wording(op_, call) + " by its kernel '" + kernel.variant + "'";
}

}  // namespace torch_fl
