#include "operator.h"

#include <algorithm>
#include <deque>

#include "error.h"

namespace torch_fl {

namespace {

std::deque<Operator>& registered() {
  static auto* operators = new std::deque<Operator>();  // read by kernels that may run at process exit
  return *operators;
}

}  // namespace

bool Operator::has_row(DtypeRow row) const noexcept { return std::find(rows.begin(), rows.end(), row) != rows.end(); }

const Operator& add_operator(Operator entry) {
  if (const Operator* known = find_operator(entry.name.c_str())) return *known;
  auto is_tensor = [](const Slot& slot) { return slot.kind == SlotKind::kTensor; };
  auto tensors = std::count_if(entry.slots.begin(), entry.slots.end(), is_tensor);
  if (entry.slots.size() > kMaxSlots || tensors > kMaxTensors || entry.outs.size() > kMaxOuts || entry.outs.empty())
    raise(ErrorClass::kValue, entry.name + " has " + std::to_string(entry.slots.size()) + " slots, " +
                                  std::to_string(tensors) + " of them tensors, and " +
                                  std::to_string(entry.outs.size()) + " outputs; this host takes up to " +
                                  std::to_string(kMaxSlots) + ", " + std::to_string(kMaxTensors) + ", and 1 to " +
                                  std::to_string(kMaxOuts));
  entry.id = operator_count();
  registered().push_back(std::move(entry));
  return registered().back();
}

const Operator* find_operator(const char* name) noexcept {
  for (const Operator& entry : registered())
    if (entry.name == name) return &entry;
  return nullptr;
}

int operator_count() noexcept { return int(registered().size()); }

const Operator& operator_at(int id) noexcept { return registered()[size_t(id)]; }

}  // namespace torch_fl
