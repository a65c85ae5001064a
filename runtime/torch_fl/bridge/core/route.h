// For each device the table that says which kernel serves which call, and what became of the calls.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "operator.h"

namespace torch_fl {

class Device;

// What became of the calls of one operator on one device. Relaxed: sums are right once the callers are done.
struct Counters {
  std::atomic<uint64_t> native{0};       // served by a kernel of the device, with or without relayout
  std::atomic<uint64_t> relayout{0};     // of these, after the host had copied operands into a layout it takes
  std::atomic<uint64_t> generic{0};      // handed to other operators on the device
  std::atomic<uint64_t> cpu{0};          // computed on the host
  std::atomic<uint64_t> errors{0};       // raised
  std::atomic<uint64_t> bytes_moved{0};  // between device and host, by the CPU tier
  // Of the general lane: whether the outputs' sizes, strides and dtypes were known from an earlier call like this one.
  std::atomic<uint64_t> shape_hits{0}, shape_misses{0};
};

// Process-wide wishes of the user; read on every call, changed rarely.
struct Policy {
  std::atomic<bool> admit_fast{false};     // tier FAST for every operator
  std::atomic<bool> deterministic{false};  // only FL_KERNEL_DETERMINISTIC
  std::atomic<bool> native{true}, generic{true}, cpu{true};  // each tier can be switched off
  // Further opinions, asked only where a kernel's eligibility hangs on them; null: none. Set once, at start.
  bool (*admits_fast_f32_products)() noexcept = nullptr;
  bool (*wants_deterministic)() noexcept = nullptr;
};
extern Policy policy;

// What the choice of a kernel depends on besides the dtype row.
struct Demand {
  const fl_call* call;  // with tensors, for their layouts
  uint32_t max_ndim;
  uint64_t addresses;   // bitwise or of the tensors' first addresses: their common alignment
  bool has_number;      // a tensor slot carries a number: FL_KERNEL_TAKES_SCALAR
  bool aliases;         // output 0 is an input: FL_KERNEL_INPLACE_OK
};

// FL_LAYOUT_* that hold for a tensor; FL_LAYOUT_STRIDED is always among them.
uint32_t layouts_of(const fl_tensor& tensor) noexcept;

// Which kernels this device offers for each operator. Candidates stand in the order of the specification: priority high
// to low, then variant name; never load order. Built once, when the device is added; then read without a lock.
class RouteTable {
 public:
  explicit RouteTable(Device& device);
  ~RouteTable();
  RouteTable(const RouteTable&) = delete;
  RouteTable& operator=(const RouteTable&) = delete;

  // Unknown operators, revisions, tiers and dtype rows are passed over.
  void read(const fl_kernel_table& table);

  // The first eligible kernel after `previous` (null: from the start), null when there is none. `demand` null asks for
  // a kernel whatever the call's layouts: what the host could serve after a relayout.
  const fl_kernel* select(const Operator& op, DtypeRow row, const Demand* demand,
                          const fl_kernel* previous = nullptr) const noexcept;
  // Whether a kernel that the policy admits claims this row: what supports() says.
  bool claims(const Operator& op, DtypeRow row) const noexcept { return select(op, row, nullptr) != nullptr; }

  Counters& counters(const Operator& op) noexcept;
  void disable(const Operator& op, bool disabled) noexcept;  // for users who distrust a kernel: its calls step down

 private:
  struct Candidate {
    DtypeRow row;
    const fl_kernel* kernel;
  };
  struct Entry {
    Counters counters;
    std::atomic<bool> disabled{false};
    std::vector<Candidate> candidates;  // sorted by row, then by priority and name
    // For the dtype of type variable 0: the first of its candidates, and one past the last.
    uint16_t first[32] = {};
    uint16_t last[32] = {};
  };
  void index(Entry& entry);

  std::unique_ptr<Entry[]> entries_;  // by operator id
  int n_entries_;
};

}  // namespace torch_fl
