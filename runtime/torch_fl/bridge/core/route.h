// Operators, and for each device the table that says which kernel serves which call.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "stream.h"

namespace torch_fl {

enum class SlotKind : uint8_t {
  kTensor, kTensorList, kScalar, kInt, kFloat, kBool, kIntList, kString, kDtype, kRng
};

// One argument of a registry operator. type: a type variable (0 ...), kFixed + FL_DTYPE_* for a fixed dtype, or kNoType.
struct Slot {
  static constexpr uint8_t kNoType = 0xff;
  static constexpr uint8_t kFixed = 0x80;
  std::string name;
  SlotKind kind;
  uint8_t type;
  bool optional;
  bool scalar;   // a variant with FL_KERNEL_TAKES_SCALAR may get a number
  bool inplace;  // output 0 may equal it under FL_KERNEL_INPLACE_OK
};

struct Operator {  // one entry of the operator registry: the newest revision this host speaks
  int id;
  std::string name;  // "aten::add.Tensor"
  std::string op_class;
  uint32_t revision;
  uint8_t n_types;
  std::vector<Slot> slots;
  std::vector<uint8_t> outs;  // type of each output, coded as Slot::type
};

// Filled once, at discovery, from the registry; ids are dense. Fast-lane code looks its operator up by name at the first
// use of any device (see fast.h), so ids need not be known at compile time.
const std::vector<Operator>& operators();
const Operator* find_operator(const std::string& name);  // null: not in the registry
const Operator& add_operator(Operator entry);            // sets id; before the first device is added

// Counters of one operator on one device; relaxed atomics, read by torch_fl.counters().
struct Counters {
  std::atomic<uint64_t> native, relayout, generic, cpu, errors, bytes_moved;
};

// One kernel of a device that this host may use for an operator.
struct Variant {
  const fl_kernel* kernel;
  uint32_t dtype_rows[8][1];  // see route.cpp
};

// What a call looks like, for the choice of its variant.
struct CallShape {
  std::array<uint8_t, 8> dtypes;  // one per type variable, FL_DTYPE_*
  uint32_t layouts_needed;        // bits of FL_LAYOUT_* of which the variant must admit one that holds for all tensors:
                                  // FL_LAYOUT_STRIDED is always among them
  uint32_t max_ndim;
  uint32_t alignment;             // largest power of two that divides every tensor's first address, capped at 64 KiB
  bool has_scalar;                // a tensor slot carries a number: needs FL_KERNEL_TAKES_SCALAR
  bool aliases;                   // output 0 is one of the inputs: needs FL_KERNEL_INPLACE_OK
};

struct Policy {  // process-wide, changed rarely; atomics
  std::atomic<bool> admit_fast;         // tier FAST: only on the user's word
  std::atomic<bool> deterministic;      // only FL_KERNEL_DETERMINISTIC
  std::atomic<bool> native, generic, cpu;  // tiers, each switchable; all on
};
extern Policy policy;

// Candidates in order: admitted tier, priority high to low, variant name; never load order [FL-KERNEL-010].
class RouteTable {
 public:
  explicit RouteTable(Device& device);
  void read(const fl_kernel_table& table);  // ignores unknown names and revisions, skips rows with unknown dtypes
  // The first eligible kernel after `previous` (null: from the start), null when there is none.
  const fl_kernel* select(const Operator& op, const CallShape& shape, const fl_kernel* previous = nullptr) const noexcept;
  // Whether any variant claims this dtype row: what torch_fl.supports() says.
  bool claims(const Operator& op, const std::array<uint8_t, 8>& dtypes) const noexcept;
  int operator_count() const noexcept;
  Counters& counters(int op) noexcept;
  void disable(int op, bool disabled) noexcept;  // tests, and users who distrust one kernel

 private:
  struct Entry;
  Device& device_;
  std::vector<Entry> entries_;  // by operator id
};

}  // namespace torch_fl
