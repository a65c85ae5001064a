#include "host_twin.h"

#include <algorithm>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/CPUAllocator.h>

#include "allocator.h"
#include "copy.h"
#include "device_copy.h"
#include "transfer.h"

namespace torch_fl {
namespace {

// A CPU tensor of the same geometry over `storage`, whose first byte is byte `start` of the tensor's own storage.
at::Tensor over(const c10::Storage& storage, const at::Tensor& like, int64_t start) {
  at::Tensor out = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), like.dtype());
  const auto itemsize = static_cast<int64_t>(like.itemsize());
  out.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(),
                                                   like.storage_offset() - start / itemsize);
  out._set_conj(like.is_conj());
  out._set_neg(like.is_neg());
  return out;
}

void release_storage(void* storage) { delete static_cast<c10::Storage*>(storage); }

// The device's memory as the host sees it. An operator that resizes it moves to memory of the host's.
c10::Storage shared_storage(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  const Span span = span_of(storage.data_ptr());
  void* address = reinterpret_cast<void*>(span.base + span.byte_offset);
  c10::DataPtr data(address, new c10::Storage(storage), &release_storage, c10::DeviceType::CPU);
  return c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(data), c10::GetCPUAllocator(),
                      storage.resizable());
}

// Bytes [first, last) of the tensor's storage.
at::Tensor bytes_between(const at::Tensor& tensor, int64_t first, int64_t last) {
  at::Tensor out = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(tensor.storage()), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(c10::kByte));
  const int64_t size = last - first;
  const int64_t stride = 1;
  out.unsafeGetTensorImpl()->set_sizes_and_strides(c10::IntArrayRef(size), c10::IntArrayRef(stride), first);
  return out;
}

struct Bytes {
  int64_t first, last;  // of a storage: [first, last)
};

Bytes bytes_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {0, 0};
  const auto itemsize = static_cast<int64_t>(tensor.itemsize());
  const int64_t first = tensor.storage_offset() * itemsize;
  return {first, first + extent(tensor) * itemsize};
}

// Elements that are one in the tensor's memory are one in its twin's, too, and are written once.
void write_once(at::Tensor device, at::Tensor host) {
  for (int64_t d = 0; d < device.dim(); d++) {
    if (device.stride(d) != 0 || device.size(d) < 2) continue;
    device = device.narrow(d, 0, 1);
    host = host.narrow(d, 0, 1);
  }
  copy_tensor(device, host, /*non_blocking=*/false);
}

}  // namespace

void HostTwins::add(const at::Tensor& tensor, bool written, bool out_only) {
  auto [place, is_new] = twins_.try_emplace(tensor.unsafeGetTensorImpl());
  Twin& twin = place->second;
  if (is_new) {
    twin = {tensor, {}, written, out_only, nullptr};
    order_.push_back(&twin);
    return;
  }
  twin.written |= written;
  twin.out_only &= out_only;
}

void HostTwins::make() {
  std::vector<Group> groups;
  for (Twin* twin : order_) {
    auto same = std::find_if(groups.begin(), groups.end(),
                             [&](const Group& group) { return group[0]->device.is_alias_of(twin->device); });
    if (same == groups.end())
      groups.push_back({twin});
    else
      same->push_back(twin);
  }
  for (const Group& group : groups) make_group(group);
}

void HostTwins::make_group(const Group& group) {
  Device& device = device_of(group[0]->device.device());
  if (device.info.host_accessible != 0) {
    current_stream(device).synchronize();
    const c10::Storage storage = shared_storage(group[0]->device);
    for (Twin* twin : group) {
      twin->host = over(storage, twin->device, 0);
      twin->shared = storage.data();
    }
    return;
  }
  if (group.size() == 1 || std::none_of(group.begin(), group.end(), [](const Twin* twin) { return twin->written; })) {
    for (Twin* twin : group) {
      const at::Tensor& tensor = twin->device;
      twin->host = twin->out_only && group.size() == 1
                       ? at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU))
                       : to_host(tensor);
    }
    return;
  }
  // Memory that is written under one name and may be read under another: all of it at once.
  Bytes all = bytes_of(group[0]->device);
  for (const Twin* twin : group) {
    const Bytes bytes = bytes_of(twin->device);
    if (bytes.first == bytes.last) continue;
    if (all.first == all.last) all = bytes;
    all = {std::min(all.first, bytes.first), std::max(all.last, bytes.last)};
  }
  all.first -= all.first % 16;  // a multiple of every element size
  const at::Tensor raw = to_host(bytes_between(group[0]->device, all.first, all.last));
  for (Twin* twin : group) twin->host = over(raw.storage(), twin->device, all.first);
}

const at::Tensor* HostTwins::device_tensor(const at::Tensor& host) const {
  for (const Twin* twin : order_) {
    if (twin->host.is_same(host)) return &twin->device;
  }
  return nullptr;
}

void HostTwins::write_back() {
  for (const Twin* twin : order_) {
    const at::Tensor& device = twin->device;
    const at::Tensor& host = twin->host;
    const bool in_place = twin->shared != nullptr && host.storage().data() == twin->shared;
    if (!twin->written) continue;
    if (device.sizes() != host.sizes()) {
      device.resize_(host.sizes());
      if (host.is_non_overlapping_and_dense())
        device.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides());
    }
    if (!in_place) write_once(device, host);
  }
}

}  // namespace torch_fl
