// Events that the bridge itself uses, recycled: creating one costs more than recording it.
#pragma once
#include <mutex>
#include <vector>

#include "device.h"
#include "error.h"

namespace torch_fl {

// Of one device. Thread-safe.
class EventPool {
 public:
  explicit EventPool(Device& device) : device_(device) {}

  // An event of whatever generation: record it before anything else. Or the vendor's status, where it has no more.
  fl_status take(bool timing, fl_event* out, VendorError& error);
  // Its last generation may be pending; waits for it hold.
  void give_back(fl_event event, bool timing) noexcept;

 private:
  Device& device_;
  std::mutex mutex_;
  std::vector<fl_event> plain_;
  std::vector<fl_event> timing_;
};

}  // namespace torch_fl
