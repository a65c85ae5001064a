// One call of an operator in the interface's canonical form, built on the caller's stack and submitted.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "allocator.h"
#include "argument.h"
#include "core/device.h"
#include "core/route.h"
#include "dtype.h"
#include "number.h"

namespace torch_fl {

// Slots and outputs are given once each, in any order; what they point to must live until submit() has returned. Tensors
// are on the device or have no elements; they already have the dtypes of the row, broadcast sizes and so on: what Call
// adds is the choice of a kernel, and copies where the kernels' layouts ask for them.
class Call {
 public:
  Call(const Operator& op, Device& device) noexcept : op_(op), device_(device) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void none(int slot) noexcept { set(slot, FL_TAG_NONE); }
  void integer(int slot, int64_t value) noexcept { set(slot, FL_TAG_INT).value.i = value; }
  void boolean(int slot, bool value) noexcept { set(slot, FL_TAG_BOOL).value.i = value; }
  void floating(int slot, double value) noexcept { set(slot, FL_TAG_FLOAT).value.f = value; }
  void dtype(int slot, uint32_t value) noexcept { set(slot, FL_TAG_DTYPE).value.i = value; }
  void integers(int slot, c10::IntArrayRef values) noexcept;
  void text(int slot, const char* value, size_t bytes) noexcept;  // NUL-terminated
  // A number of the slot's own dtype under the row; in a tensor slot it stands for a tensor of that one value.
  void number(int slot, const fl_arg& value) noexcept;
  void rng(int slot, const std::optional<at::Generator>& generator) noexcept;
  void tensor(int slot, const at::TensorBase& tensor) { this->tensor(slot, tensor, tensor.sizes(), tensor.strides()); }
  // The tensor's elements under other sizes and strides, from its first element on.
  void tensor(int slot, const at::TensorBase& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides);
  void tensors(int slot, c10::ArrayRef<const at::TensorBase*> list);  // null: an absent entry
  // Anything that is no tensor; `dtype` is the one of the slot's type. False: a value that no kernel takes there.
  bool plain(int slot, const Argument& value, uint32_t dtype);

  // Outputs in order; bind the type variables that they alone show.
  // One that nobody else has seen yet:
  void output(const at::TensorBase& tensor) { output(tensor, tensor.sizes(), tensor.strides()); }
  void output(const at::TensorBase& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides);
  // One of the user's, after all inputs: may be one of them, or share memory with them. Raises where several of its
  // elements lie in one place.
  void given_output(const at::TensorBase& tensor) { given_output(tensor, tensor.sizes(), tensor.strides()); }
  void given_output(const at::TensorBase& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides);

  // A type variable whose dtype no tensor shows.
  void bind(int variable, uint32_t dtype) noexcept { row_ |= row_of(dtype, variable); }

  // True: enqueued on the calling thread's current stream of the device, and counted. False: no kernel of the device
  // takes the call, nothing has happened; step down. Raises what the vendor says.
  bool submit();
  // The same without relayout, which itself needs copies: for those that serve it.
  bool submit_as_is();

 private:
  // A tensor of the call, and the one of torch's that it describes (null: an absent entry of a list).
  struct Described {
    fl_tensor tensor;
    const at::TensorBase* source;
  };
  fl_arg& set(int slot, uint16_t tag) noexcept {
    fl_arg& arg = args_[slot];
    arg.tag = tag;
    arg.flags = 0;
    arg.count = 0;
    return arg;
  }
  void bind(TypeRef type, uint32_t dtype) noexcept {
    if (!type.is_variable()) return;
    uint32_t bound = dtype_of(row_, type.code);
    row_ = bound == FL_DTYPE_NONE || bound == dtype ? row_ | row_of(dtype, type.code) : kNoRow;
  }
  friend class Relaid;

  void describe(Described& out, const at::TensorBase& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                uint32_t flags);
  void note_overlap(const fl_tensor& output) noexcept;
  fl_call finish() noexcept;
  bool nothing_to_do() const noexcept;  // no output has an element
  bool submit_to(const fl_call& call);
  bool launch(const fl_kernel& kernel, const fl_call& call);
  bool relay(const fl_call& call);
  std::string what(const fl_kernel& kernel, const fl_call& call, const char* step) const;

  const Operator& op_;
  Device& device_;
  DtypeRow row_ = 0;
  uint64_t addresses_ = 0;
  uint32_t max_ndim_ = 0;
  int n_inputs_ = 0;
  int n_outs_ = 0;
  int rng_slot_ = -1;
  const std::optional<at::Generator>* generator_ = nullptr;
  bool has_number_ = false;
  bool aliases_ = false;
  bool detour_ = false;  // an output shares memory with an input other than by being it: compute elsewhere, then copy

  fl_arg args_[kMaxSlots];
  Described inputs_[kMaxTensors];  // of tensor slots
  Described outputs_[kMaxOuts];
  const fl_tensor* outs_[kMaxOuts];
  c10::SmallVector<Described, 4> listed_;  // of all tensor lists, one after the other
  c10::SmallVector<const fl_tensor*, 4> listed_pointers_;
};

// The next output; given: it is one of the user's.
inline void give_output(Call& call, const at::TensorBase& out, bool given, c10::IntArrayRef sizes,
                        c10::IntArrayRef strides) {
  if (given)
    call.given_output(out, sizes, strides);
  else
    call.output(out, sizes, strides);
}
inline void give_output(Call& call, const at::TensorBase& out, bool given) {
  give_output(call, out, given, out.sizes(), out.strides());
}

}  // namespace torch_fl
