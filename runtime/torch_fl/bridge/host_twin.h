// CPU tensors that stand for tensors of fl devices while the CPU computes.
#pragma once
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch_fl {

// Used by one thread. First add() every tensor of a call, then make(), then host(), after the computation write_back().
// Tensors that share memory have twins that share memory wherever one of them is written.
class HostTwins {
 public:
  // On an fl device. out_only: the computation writes all of it without looking.
  void add(const at::Tensor& tensor, bool written, bool out_only);
  void make();
  const at::Tensor& host(const at::Tensor& tensor) const { return twins_.at(tensor.unsafeGetTensorImpl()).host; }
  // The tensor that `host` is the twin of, null where it is none.
  const at::Tensor* device_tensor(const at::Tensor& host) const;
  // Copies what may have been written back to the device, and gives tensors the sizes that their twins now have.
  void write_back();

 private:
  struct Twin {
    at::Tensor device, host;
    bool written, out_only;
    const void* shared;  // the device's own memory that the host works in, else null
  };
  using Group = std::vector<Twin*>;  // of one storage

  void make_group(const Group& group);

  std::unordered_map<const c10::TensorImpl*, Twin> twins_;
  std::vector<Twin*> order_;
};

}  // namespace torch_fl
