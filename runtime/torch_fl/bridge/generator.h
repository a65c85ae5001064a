// Random state of fl devices: a seed and how many Philox counters of it have been used [FL-KERNEL-014].
#pragma once
#include <optional>

#include <ATen/core/Generator.h>

#include "convert.h"

namespace torch_fl {

// As torch wants it, every method but `next` is called with mutex_ held where threads share the generator.
class PhiloxGenerator final : public c10::GeneratorImpl {
 public:
  PhiloxGenerator(int device_index, uint64_t seed);

  static c10::DeviceType device_type() { return kFl; }

  // Uses up `increment` counters from the returned offset on: no other call gets one of them. Takes mutex_ itself.
  fl_rng next(uint64_t increment);

  void set_current_seed(uint64_t seed) override;  // and offset 0
  uint64_t current_seed() const override { return state_.seed; }
  uint64_t seed() override;  // a new one that nobody can foresee
  void set_offset(uint64_t offset) override { state_.offset = offset; }
  uint64_t get_offset() const override { return state_.offset; }
  // A uint8 tensor of 16 elements on the CPU: seed and offset, little-endian.
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  void set_state(const c10::TensorImpl& state) override;

 private:
  PhiloxGenerator* clone_impl() const override;

  fl_rng state_;
};

// The generator of a device that random operators use unless they are given one; index -1: of the current device. It is
// there before the device is, so that seeding starts no driver.
const at::Generator& default_generator(int index);
// The default generators of all devices, of those too that are found later.
void seed_default_generators(uint64_t seed);

// `increment` counters for a random operator on `device`, from the generator that it was given or the device's default.
// Raises for a generator of another device.
fl_rng next_random(const std::optional<at::Generator>& generator, const Device& device, uint64_t increment);

}  // namespace torch_fl
