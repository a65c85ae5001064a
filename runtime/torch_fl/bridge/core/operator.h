// Operators of the registry, as the host needs them for routing.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "torch_fl/plugin.h"

namespace torch_fl {

// Dtypes of a call's type variables, one byte each in the registry's order, unused ones 0: a dtype row as one number.
using DtypeRow = uint64_t;
constexpr DtypeRow row_of(uint32_t dtype, int variable) noexcept { return DtypeRow(dtype) << (8 * variable); }
constexpr uint32_t dtype_of(DtypeRow row, int variable) noexcept { return uint32_t(row >> (8 * variable)) & 0xff; }

constexpr DtypeRow kNoRow = ~DtypeRow(0);  // of tensors that agree on none

enum class SlotKind : uint8_t { kTensor, kTensorList, kScalar, kInt, kFloat, kBool, kIntList, kString, kDtype, kRng };

// The dtype of a slot or an output: a type variable (0 ... 7), a fixed dtype, or none.
struct TypeRef {
  static constexpr uint8_t kNone = 0xff;
  static constexpr uint8_t kFixed = 0x80;  // | FL_DTYPE_*
  uint8_t code = kNone;

  bool is_variable() const noexcept { return code < FL_MAX_TYPE_VARIABLES; }
  bool is_fixed() const noexcept { return code != kNone && (code & kFixed) != 0; }
  // FL_DTYPE_* under a row; FL_DTYPE_NONE for an untyped slot.
  uint32_t under(DtypeRow row) const noexcept {
    if (is_variable()) return dtype_of(row, code);
    return is_fixed() ? code & ~kFixed : FL_DTYPE_NONE;
  }
};

// What the host does to a value on its way into canonical form, beyond types.
enum class SlotRule : uint8_t {
  kAsIs,
  kDim,      // one dimension of the first tensor, from the end where negative
  kDims,     // dimensions of the first tensor: non-negative, sorted, each once; none given or an empty list: all
  kSpatial,  // one entry per dimension of the first tensor after the first two; a single one is repeated
  kWindow,   // two entries; a single one is repeated, none are those of the list before, which is the window's size
  kPad,      // two entries per dimension of the first tensor, zeros where there are fewer; none negative
  kExpand,   // a tensor, expanded to the sizes of output 0
};

// One argument of fl_call.args.
struct Slot {
  std::string name;
  std::string argument;  // of the ATen schema; most often the same
  SlotRule rule = SlotRule::kAsIs;
  SlotKind kind = SlotKind::kTensor;
  TypeRef type;
  bool optional = false;  // may carry FL_TAG_NONE
  bool scalar = false;    // a kernel with FL_KERNEL_TAKES_SCALAR may get a number for the tensor
  bool inplace = false;   // output 0 may equal it under FL_KERNEL_INPLACE_OK
  std::vector<std::string> choices;  // of a string
  double absent = 0;                 // of a scalar that is not optional: what None stands for
};

// One operator at one revision: the newest that the registry of this host knows.
struct Operator {
  int id = -1;        // dense, in order of registration
  std::string name;   // "aten::add.Tensor"
  std::string op_class;
  uint32_t revision = 0;
  int n_types = 0;
  std::vector<DtypeRow> rows;  // all that the registry has
  std::vector<Slot> slots;
  std::vector<TypeRef> outs;
  // ATen arguments without a slot that may have any value, since they only shape the outputs or don't matter forward.
  // Others without a slot must be at their default.
  std::vector<std::string> free_arguments;

  bool has_row(DtypeRow row) const noexcept;
};

constexpr int kMaxSlots = 24;
constexpr int kMaxTensors = 12;  // tensor slots, apart from lists
constexpr int kMaxOuts = 8;

// Filled once, at discovery, before the first device is added; reading needs no lock. The references stay valid.
// Sets id. A name that is known already keeps its entry: discovery may be tried again. kValue: beyond the limits above.
const Operator& add_operator(Operator entry);
const Operator* find_operator(const char* name) noexcept;  // null: not in the registry
int operator_count() noexcept;
const Operator& operator_at(int id) noexcept;

}  // namespace torch_fl
