// Events that the bridge itself uses, recycled: creating one costs more than recording it.
#pragma once
#include <mutex>
#include <vector>

#include "device.h"

namespace torch_fl {

// Of one device. Thread-safe.
class EventPool {
 public:
  explicit EventPool(Device& device) : device_(device) {}

  // An event of whatever generation: record it before anything else. Raises where the vendor has no more.
  fl_event take(bool timing);
  // Its last generation may be pending; waits for it hold.
  void give_back(fl_event event, bool timing) noexcept;

 private:
  Device& device_;
  std::mutex mutex_;
  std::vector<fl_event> plain_;
  std::vector<fl_event> timing_;
};

}  // namespace torch_fl
