#include "generator.h"

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <ATen/EmptyTensor.h>

#include "core/error.h"

namespace torch_fl {
namespace {

constexpr int64_t kStateBytes = 16;

std::vector<at::Generator>& default_generators() {
  static auto& leaked = *[] {
    auto* made = new std::vector<at::Generator>;  // never destroyed: torch may ask from static destructors
    // One look at the system's randomness, since it opens a file; odd multiples keep the seeds apart.
    const uint64_t random = c10::detail::getNonDeterministicRandom();
    for (int index = 0; index < kMaxDevices; ++index)
      made->push_back(
          at::make_generator<PhiloxGenerator>(index, random + static_cast<uint64_t>(index) * 0x9E3779B97F4A7C15));
    return made;
  }();
  return leaked;
}

}  // namespace

PhiloxGenerator::PhiloxGenerator(int device_index, uint64_t seed)
    : c10::GeneratorImpl(torch_device(device_index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      state_{seed, 0} {}

fl_rng PhiloxGenerator::next(uint64_t increment) {
  std::lock_guard<std::mutex> lock(mutex_);
  const fl_rng taken = state_;
  state_.offset += increment;
  return taken;
}

void PhiloxGenerator::set_current_seed(uint64_t seed) { state_ = {seed, 0}; }

uint64_t PhiloxGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return state_.seed;
}

c10::intrusive_ptr<c10::TensorImpl> PhiloxGenerator::get_state() const {
  at::TensorBase state = at::detail::empty_cpu({kStateBytes}, c10::ScalarType::Byte);
  std::memcpy(state.mutable_data_ptr(), &state_.seed, 8);
  std::memcpy(static_cast<char*>(state.mutable_data_ptr()) + 8, &state_.offset, 8);
  return state.getIntrusivePtr();
}

void PhiloxGenerator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  if (state.numel() != kStateBytes) {
    raise(ErrorClass::kValue, "the random state of an fl device has " + std::to_string(kStateBytes) + " bytes, got " +
                                  std::to_string(state.numel()) + ": pass what get_rng_state() of an fl device gave");
  }
  const char* bytes = static_cast<const char*>(state.data());
  std::memcpy(&state_.seed, bytes, 8);
  std::memcpy(&state_.offset, bytes + 8, 8);
}

PhiloxGenerator* PhiloxGenerator::clone_impl() const {
  auto* copy = new PhiloxGenerator(device().index(), state_.seed);
  copy->set_offset(state_.offset);
  return copy;
}

const at::Generator& default_generator(int index) {
  if (index == -1) index = current_device();
  if (index < 0 || index >= kMaxDevices) device(index);  // raises
  return default_generators()[static_cast<size_t>(index)];
}

void seed_default_generators(uint64_t seed) {
  for (at::Generator& generator : default_generators()) {
    std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_current_seed(seed);
  }
}

fl_rng next_random(const std::optional<at::Generator>& generator, const Device& device, uint64_t increment) {
  auto* philox = at::get_generator_or_default<PhiloxGenerator>(generator, default_generator(device.index));
  if (philox->device().index() != device.index) {
    raise(ErrorClass::kRuntime,
          "expected a generator of fl:" + std::to_string(device.index) + ", got one of " + philox->device().str() +
              ": make it with torch.Generator(device=\"fl:" + std::to_string(device.index) + "\")");
  }
  return philox->next(increment);
}

}  // namespace torch_fl
