#include "autograd_threads.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <torch/csrc/autograd/engine.h>

namespace torch_fl {
namespace {

constexpr char kName[] = "pt_autograd_";  // and the device's index, as torch names them

bool any_left() {
  std::error_code unreadable;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", unreadable)) {
    std::ifstream file(task.path() / "comm");
    std::string name;
    if (std::getline(file, name) && name.rfind(kName, 0) == 0) return true;
  }
  return false;
}

}  // namespace

void end_autograd_threads() {
  torch::autograd::Engine::get_default_engine().stop();
  // Torch counts a thread as gone before the last time that it takes the GIL.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (any_left() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace torch_fl
