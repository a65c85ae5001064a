// The second try: calls whose tensors lie as no kernel takes them are laid out anew.
#include <algorithm>
#include <deque>

#include <ATen/ops/as_strided.h>

#include "call.h"
#include "canonical.h"
#include "copy.h"
#include "core/profile.h"
#include "factories.h"

namespace torch_fl {

namespace {

// A layout to bring tensors into: contiguous where the kernel takes that, else the first that it has for the rank.
c10::MemoryFormat format_for(const fl_kernel& kernel, uint32_t ndim) {
  if (kernel.layouts & (FL_LAYOUT_STRIDED | FL_LAYOUT_CONTIGUOUS | FL_LAYOUT_PERMUTED))
    return c10::MemoryFormat::Contiguous;
  if (ndim == 4 && kernel.layouts & FL_LAYOUT_CHANNELS_LAST_2D) return c10::MemoryFormat::ChannelsLast;
  if (ndim == 5 && kernel.layouts & FL_LAYOUT_CHANNELS_LAST_3D) return c10::MemoryFormat::ChannelsLast3d;
  return c10::MemoryFormat::Contiguous;
}

bool lies_right(const fl_kernel& kernel, const fl_tensor& tensor) {
  if (kernel.data_align > 1 && ((tensor.base + tensor.byte_offset) & (kernel.data_align - 1)) != 0) return false;
  return (kernel.layouts & FL_LAYOUT_STRIDED) != 0 || (layouts_of(tensor) & kernel.layouts) != 0;
}

// The tensor of torch's that a described one is: sizes and strides may be others than its source's.
at::Tensor view_of(const at::TensorBase& source, const fl_tensor& described) {
  return at::as_strided(at::Tensor(source), c10::IntArrayRef(described.sizes, described.ndim),
                        c10::IntArrayRef(described.strides, described.ndim), source.storage_offset());
}

}  // namespace

// A call once more, with other tensors where one kernel takes those of the first not as they are.
class Relaid {
 public:
  Relaid(Call& call, const fl_kernel& kernel)
      : call_(call), device_(call.device_), op_(call.op_), kernel_(kernel), listed_(call.listed_.size()) {}

  // False: the kernel does not take this one either.
  bool launch(const fl_call& first) {
    for (size_t slot = 0; slot < op_.slots.size(); ++slot) {
      args_[slot] = call_.args_[slot];
      replace_input(slot);
    }
    replace_listed();
    for (int i = 0; i < call_.n_outs_; ++i) replace_output(i);
    fl_call relaid = first;
    relaid.args = args_;
    relaid.outs = outs_;
    if (!call_.launch(kernel_, relaid)) return false;
    for (int i = 0; i < call_.n_outs_; ++i) {
      const Call::Described& wanted = call_.outputs_[i];
      if (computed_[i] != nullptr) copy_tensor(view_of(*wanted.source, wanted.tensor), *computed_[i], /*non_blocking=*/false);
    }
    return true;
  }

 private:
  void replace_input(size_t slot) {
    if (op_.slots[slot].kind != SlotKind::kTensor || args_[slot].tag == FL_TAG_NONE) return;
    if (args_[slot].tag != FL_TAG_TENSOR) {
      if (kernel_.flags & FL_KERNEL_TAKES_SCALAR) return;
      fl_tensor& made = inputs_[n_inputs_++];
      fill(args_[slot], op_.slots[slot].type.under(call_.row_), made);
      args_[slot] = {FL_TAG_TENSOR, 0, 0, {}};
      args_[slot].value.tensor = &made;
      return;
    }
    for (int i = 0; i < call_.n_inputs_; ++i) {
      const Call::Described& described = call_.inputs_[i];
      if (&described.tensor != args_[slot].value.tensor || lies_right(kernel_, described.tensor)) continue;
      fl_tensor& made = inputs_[n_inputs_++];
      copy_tensor(make(described.tensor, made), view_of(*described.source, described.tensor), /*non_blocking=*/false);
      args_[slot].value.tensor = &made;
      return;
    }
  }

  void replace_listed() {
    pointers_ = call_.listed_pointers_;
    for (size_t i = 0; i < listed_.size(); ++i) {
      const Call::Described& described = call_.listed_[i];
      if (described.source == nullptr || lies_right(kernel_, described.tensor)) continue;
      copy_tensor(make(described.tensor, listed_[i]), view_of(*described.source, described.tensor), /*non_blocking=*/false);
      pointers_[i] = &listed_[i];
    }
    for (size_t slot = 0; slot < op_.slots.size(); ++slot)
      if (args_[slot].tag == FL_TAG_TENSOR_LIST)
        args_[slot].value.tensors = pointers_.data() + (args_[slot].value.tensors - call_.listed_pointers_.data());
  }

  void replace_output(int i) {
    const fl_tensor& wanted = call_.outputs_[i].tensor;
    outs_[i] = &wanted;
    bool shared = call_.detour_ || (call_.aliases_ && (kernel_.flags & FL_KERNEL_INPLACE_OK) == 0);
    if (!shared && lies_right(kernel_, wanted)) return;
    computed_[i] = &make(wanted, outputs_[i]);
    outs_[i] = &outputs_[i];
  }

  // New contiguous memory whose first element lies as the kernel wants it: more alignment than the pool's is had by
  // taking more.
  at::Tensor& aligned(uint32_t dtype, c10::IntArrayRef sizes) {
    const c10::ScalarType type = scalar_type(dtype);
    const uint64_t align = kernel_.data_align;
    if (align <= std::max<uint64_t>(kGranule, device_.info.alloc_align))
      return made_.emplace_back(empty_on(device_, type, sizes));
    const int64_t slack = int64_t(align / c10::elementSize(type));
    const at::Tensor roomy = empty_on(device_, type, {c10::multiply_integers(sizes) + slack});
    const Span span = span_of(roomy);
    const int64_t beyond = int64_t((span.base + span.byte_offset) % align / roomy.itemsize());
    at::Tensor& made = made_.emplace_back(roomy.narrow(0, beyond == 0 ? 0 : slack - beyond, roomy.numel() - slack));
    made.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
    return made;
  }

  // New memory of the described sizes, laid out for the kernel.
  at::Tensor& make(const fl_tensor& like, fl_tensor& out) {
    at::Tensor& made = aligned(like.dtype, c10::IntArrayRef(like.sizes, like.ndim));
    c10::MemoryFormat format = format_for(kernel_, like.ndim);
    if (format != c10::MemoryFormat::Contiguous) made.unsafeGetTensorImpl()->empty_tensor_restride(format);
    place(made, like, made.sizes(), made.strides(), out);
    return made;
  }

  // A tensor of one value with the output's sizes: one element under stride 0 where the kernel takes that.
  void fill(const fl_arg& value, uint32_t dtype, fl_tensor& out) {
    static const int64_t no_strides[64] = {};
    fl_tensor like = call_.outputs_[0].tensor;
    like.dtype = dtype;
    like.flags = FL_TENSOR_READONLY;
    c10::IntArrayRef sizes(like.sizes, like.ndim);
    bool repeated = (kernel_.layouts & FL_LAYOUT_STRIDED) != 0 && like.ndim <= 64;
    at::Tensor& made = aligned(dtype, repeated ? c10::IntArrayRef{1} : sizes);
    torch_fl::fill(device_, made, value, dtype);
    place(made, like, sizes, repeated ? c10::IntArrayRef(no_strides, like.ndim) : made.strides(), out);
  }

  static void place(const at::Tensor& made, const fl_tensor& like, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                    fl_tensor& out) {
    Span span = span_of(made);
    out = like;
    out.base = span.base;
    out.byte_offset = span.byte_offset;
    out.base_bytes = span.base_bytes;
    out.sizes = sizes.data();
    out.strides = strides.data();
  }

  Call& call_;
  Device& device_;
  const Operator& op_;
  const fl_kernel& kernel_;
  std::deque<at::Tensor> made_;  // alive until the work is enqueued; sizes and strides point into them

  int n_inputs_ = 0;
  fl_arg args_[kMaxSlots];
  fl_tensor inputs_[kMaxTensors];
  fl_tensor outputs_[kMaxOuts];
  const fl_tensor* outs_[kMaxOuts];
  at::Tensor* computed_[kMaxOuts] = {};  // outputs to copy back
  c10::SmallVector<fl_tensor, 8> listed_;
  c10::SmallVector<const fl_tensor*, 4> pointers_;
};

bool Call::relay(const fl_call& call) {
  RouteTable& routes = device_.routes();
  for (const fl_kernel* kernel = nullptr; (kernel = routes.select(op_, row_, nullptr, kernel)) != nullptr;) {
    if (max_ndim_ > kernel->max_ndim || !Relaid(*this, *kernel).launch(call)) continue;
    routes.counters(op_).native.fetch_add(1, std::memory_order_relaxed);
    routes.counters(op_).relayout.fetch_add(1, std::memory_order_relaxed);
    note_served(device_, ServedBy::kRelayout);
    return true;
  }
  return false;
}

}  // namespace torch_fl
