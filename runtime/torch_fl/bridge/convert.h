// Torch's names of devices and streams, and ours.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "core/stream.h"

namespace torch_fl {

constexpr c10::DeviceType kFl = c10::DeviceType::PrivateUse1;

inline c10::Device torch_device(int index) { return {kFl, static_cast<c10::DeviceIndex>(index)}; }

// fl:N; -1 means the calling thread's current device. Raises where there is none such: an index from Python may be any
// number, and torch's own has only 8 bits of it.
inline Device& device_at(int index) {
  if (index == -1) index = current_device();
  const auto place = static_cast<unsigned>(index);
  if (place < kMaxDevices && device_list[place] != nullptr) return *device_list[place];
  return device(index);
}

// The same of torch's device; "fl" without an index has -1.
inline Device& device_of(c10::Device torch_device) { return device_at(torch_device.index()); }

inline c10::Stream torch_stream(const Stream& stream) {
  return c10::Stream(c10::Stream::UNSAFE, torch_device(stream.device.index), stream.id);
}

inline Stream& stream_of(const c10::Stream& stream) {
  Device& owner = device_of(stream.device());
  return stream.id() == 0 ? owner.streams().standard() : owner.streams().by_id(stream.id());
}

}  // namespace torch_fl
