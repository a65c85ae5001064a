#include "plan_cache.h"

#include <cstdint>
#include <cstring>

namespace torch_fl {

namespace {

constexpr uint32_t kKept = 64;  // power of two; a place holds the last call that came to it
constexpr uint32_t kWords = 56;   // longest metadata kept

struct KeptPlan {
  const fl_kernel* kernel;
  fl_device device;
  uint32_t words;
  uint64_t key[kWords];
  fl_plan plan;
};

struct PlanCache {
  KeptPlan places[kKept];
  // The call that was last asked for.
  const fl_kernel* kernel;
  fl_device device;
  KeptPlan* place;
  uint32_t words;  // 0: too long to keep
  uint64_t key[kWords];
};
thread_local PlanCache plans;

// Appends words up to kWords; remembers when there were more.
class PlanKey {
 public:
  explicit PlanKey(uint64_t* out) : out_(out) {}

  void add(uint64_t word) noexcept {
    if (words_ < kWords) out_[words_] = word;
    ++words_;
  }
  void add(const int64_t* values, uint32_t count) noexcept {
    if (words_ + count <= kWords) std::memcpy(out_ + words_, values, count * sizeof *values);
    words_ += count;
  }
  void add(const fl_tensor* tensor) noexcept {
    if (tensor == nullptr) return add(~uint64_t(0));
    add(uint64_t(tensor->dtype) << 32 | tensor->ndim);
    add(tensor->sizes, tensor->ndim);
    add(tensor->strides, tensor->ndim);
  }
  void add(const fl_arg& arg) noexcept {
    add(uint64_t(arg.tag) << 32 | arg.count);
    switch (arg.tag) {
      case FL_TAG_NONE:
      case FL_TAG_RNG:
        return;
      case FL_TAG_TENSOR:
        return add(arg.value.tensor);
      case FL_TAG_TENSOR_LIST:
        for (uint32_t i = 0; i < arg.count; ++i) add(arg.value.tensors[i]);
        return;
      case FL_TAG_INT_LIST:
        return add(arg.value.ints, arg.count);
      case FL_TAG_STRING:
        for (uint32_t i = 0; i < arg.count; i += 8) {
          uint64_t word = 0;
          std::memcpy(&word, arg.value.string + i, arg.count - i < 8 ? arg.count - i : 8);
          add(word);
        }
        return;
      case FL_TAG_BOOL:
      case FL_TAG_INT:
      case FL_TAG_UINT:
      case FL_TAG_FLOAT:
      case FL_TAG_DTYPE:
        return add(arg.value.u);
      default:
        words_ += kWords + 1;  // nothing that this host sends: never kept
    }
  }
  uint32_t words() const noexcept { return words_ <= kWords ? words_ : 0; }

 private:
  uint64_t* out_;
  uint32_t words_ = 0;
};

}  // namespace

const fl_plan* find_plan(const fl_kernel& kernel, fl_device device, const fl_call& call) noexcept {
  PlanCache& known = plans;
  PlanKey key(known.key);
  for (uint32_t i = 0; i < call.n_outs; ++i) key.add(call.outs[i]);
  for (uint32_t i = 0; i < call.n_args; ++i) key.add(call.args[i]);
  known.kernel = &kernel;
  known.device = device;
  known.words = key.words();
  if (known.words == 0) return nullptr;
  uint64_t mixed = reinterpret_cast<uintptr_t>(&kernel) / sizeof(fl_kernel) + uint64_t(call.outs[0]->numel);
  known.place = &known.places[(mixed ^ mixed >> 6) % kKept];
  const KeptPlan& place = *known.place;
  if (place.kernel != &kernel || place.device != device || place.words != known.words) return nullptr;
  if (std::memcmp(place.key, known.key, known.words * sizeof known.key[0]) != 0) return nullptr;
  return &place.plan;
}

void keep_plan(const fl_plan& plan) noexcept {
  PlanCache& known = plans;
  if (known.words == 0) return;
  KeptPlan& place = *known.place;
  place.kernel = known.kernel;
  place.device = known.device;
  place.words = known.words;
  std::memcpy(place.key, known.key, known.words * sizeof known.key[0]);
  place.plan = plan;
}

}  // namespace torch_fl
