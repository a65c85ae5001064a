#include "copy.h"

#include <optional>
#include <utility>

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/conj_physical.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include "convert.h"
#include "device_copy.h"
#include "factories.h"
#include "fallback.h"
#include "pinned.h"
#include "trace_span.h"
#include "transfer.h"

namespace torch_fl {
namespace {

bool on_fl(const at::Tensor& tensor) { return tensor.device().type() == kFl; }
Device& owner(const at::Tensor& tensor) { return device_of(tensor.device()); }
uint64_t bytes_of(const at::Tensor& tensor) { return static_cast<uint64_t>(tensor.numel()) * tensor.itemsize(); }

at::Tensor empty_host(c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  return at::empty_strided(sizes, strides, at::TensorOptions().dtype(dtype).device(at::kCPU));
}

// ---- Runs between the host and a device ---------------------------------------------------------------------------

// Host memory to device. Ordinary memory has been captured when this returns; pinned memory has been read by then, or
// is kept from reuse until it has been.
void send(const Place& destination, const at::Tensor& host, uint64_t bytes, bool non_blocking) {
  TraceSpan span(*destination.device, "copy from host");
  Stream& stream = current_stream(*destination.device);
  const void* pointer = host.const_data_ptr();
  submit_copy(stream, destination, place_of(host), bytes);
  if (!is_pinned_for(*destination.device, pointer)) return;
  if (non_blocking && pinned_record(pointer, stream)) return;
  wait_for_host_write(stream, host);
}

void fetch(const at::Tensor& host, const Place& source, uint64_t bytes, bool non_blocking) {
  TraceSpan span(*source.device, "copy to host");
  Stream& stream = current_stream(*source.device);
  submit_copy(stream, place_of(host), source, bytes);
  if (non_blocking && pinned_record(host.const_data_ptr(), stream)) return;
  wait_for_host_write(stream, host);
}

// All memory from the tensor's first element to its last, seen through the tensor's sizes and strides.
at::Tensor fetch_extent(const at::Tensor& source) {
  const int64_t elements = extent(source);
  at::Tensor host = at::empty({elements}, at::TensorOptions().dtype(source.scalar_type()).device(at::kCPU));
  fetch(host, place_of(source), static_cast<uint64_t>(elements) * source.itemsize(), false);
  return host.as_strided(source.sizes(), source.strides());
}

// ---- Whole tensors: same sizes, no conj or neg bits, at least one element -----------------------------------------

// Up to this many bytes, reading gaps along is cheaper than closing them on the device first.
constexpr uint64_t kSmall = 64 << 10;

// The values as a CPU tensor of the same sizes and dtype that shares memory with nothing. Reads nothing twice.
at::Tensor read(const at::Tensor& source) {
  const at::Tensor distinct = without_repeats(source);
  const uint64_t span = static_cast<uint64_t>(extent(source)) * source.itemsize();
  if (span <= kSmall || span <= 2 * bytes_of(distinct)) return fetch_extent(source);
  at::Tensor dense = empty_on(owner(source), source.scalar_type(), distinct.sizes());
  if (!copy_on_device(dense, distinct)) return fetch_extent(source);
  return fetch_extent(dense).expand(source.sizes());
}

void write(const at::Tensor& destination, const at::Tensor& host, bool non_blocking);

// Only where the device has no kernel for it.
void copy_through_host(const at::Tensor& destination, const at::Tensor& source) {
  StepDown step("aten::_to_copy", owner(destination), Tier::kCpu, {destination, source},
                "no kernel of the device copies between these dtypes and strides");
  write(destination, read(source), false);
}

void copy_within(const at::Tensor& destination, const at::Tensor& source) {
  if (!copy_on_device(destination, source)) return copy_through_host(destination, source);
  if (source.is_complex() && !destination.is_complex() && destination.scalar_type() != c10::kBool) {
    TORCH_WARN_ONCE("Casting complex values to real discards the imaginary part");
  }
}

// A strided destination without a kernel for it: with all that lies between its elements.
void write_with_gaps(const at::Tensor& destination, const at::Tensor& host) {
  const at::Tensor all = fetch_extent(destination);
  all.copy_(host);
  send(place_of(destination), all, static_cast<uint64_t>(extent(destination)) * destination.itemsize(), false);
}

void write(const at::Tensor& destination, const at::Tensor& host, bool non_blocking) {
  const bool is_dense = destination.is_non_overlapping_and_dense();
  if (is_dense && same_run(destination, host))
    return send(place_of(destination), host, bytes_of(destination), non_blocking);
  const at::Tensor distinct = without_repeats(host);
  // Repeat elements, or spread them, on the device.
  if (!is_dense || (distinct.numel() < host.numel() && bytes_of(destination) > kSmall)) {
    const at::Tensor few = distinct.to(destination.scalar_type()).contiguous();
    const at::Tensor dense = empty_on(owner(destination), few.scalar_type(), few.sizes());
    send(place_of(dense), few, bytes_of(few), false);
    if (copy_on_device(destination, dense.expand(destination.sizes()))) return;
    if (!is_dense) return write_with_gaps(destination, host);
  }
  const at::Tensor arranged = empty_host(destination.scalar_type(), destination.sizes(), destination.strides());
  arranged.copy_(host);
  send(place_of(destination), arranged, bytes_of(destination), false);
}

void copy_across(const at::Tensor& destination, const at::Tensor& source) {
  // Cast where that leaves fewer bytes to move.
  at::Tensor sent = without_repeats(source);
  const bool casts = destination.scalar_type() != source.scalar_type() && destination.itemsize() <= source.itemsize();
  if (casts || !sent.is_non_overlapping_and_dense()) {
    const c10::ScalarType dtype = casts ? destination.scalar_type() : source.scalar_type();
    const bool as_destination = sent.sizes() == destination.sizes() && destination.is_non_overlapping_and_dense();
    at::Tensor dense = as_destination ? empty_on(owner(source), dtype, sent.sizes(), destination.strides())
                                      : empty_on(owner(source), dtype, sent.sizes());
    copy_within(dense, sent);
    sent = std::move(dense);
  }
  const bool direct = sent.sizes() == destination.sizes() && same_run(destination, sent);
  const at::Tensor received =
      direct ? destination : empty_on(owner(destination), sent.scalar_type(), sent.sizes(), sent.strides());
  move_between(place_of(received), place_of(sent), bytes_of(sent));
  if (!direct) copy_within(destination, received.expand(destination.sizes()));
}

void copy_values(const at::Tensor& destination, const at::Tensor& source, bool non_blocking) {
  if (!on_fl(destination)) {
    if (destination.is_cpu() && same_run(destination, source)) {
      destination.mutable_data_ptr();  // a copy-on-write storage becomes the destination's own
      return fetch(destination, place_of(source), bytes_of(source), non_blocking);
    }
    destination.copy_(read(source));
  } else if (!on_fl(source)) {
    write(destination, source.is_cpu() ? source : source.cpu(), non_blocking);
  } else if (destination.device() == source.device()) {
    copy_within(destination, source);
  } else {
    copy_across(destination, source);
  }
}

// ---- What torch adds: bits, overlap, broadcasting -----------------------------------------------------------------

// The memory as it is, without what conj and neg bits say of it.
at::Tensor stored(const at::Tensor& tensor) {
  if (!tensor.is_conj() && !tensor.is_neg()) return tensor;
  const c10::DispatchKeySet bits{c10::DispatchKey::Conjugate, c10::DispatchKey::Negative};
  at::Tensor out = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(tensor.storage()),
                                                            tensor.key_set() - bits, tensor.dtype());
  out.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return out;
}

// Turns values written under `from`'s bits into values under `to`'s.
void flip(const at::Tensor& written, const at::Tensor& to, const at::Tensor& from) {
  at::Tensor values = written;
  if (values.is_complex() && to.is_conj() != from.is_conj()) values.conj_physical_();
  if (to.is_neg() != from.is_neg()) values.neg_();
}

bool is_same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.is_alias_of(b) && a.storage_offset() == b.storage_offset() && a.scalar_type() == b.scalar_type() &&
         a.sizes() == b.sizes() && a.strides() == b.strides();
}

// Whether an element of one may lie where one of the other does. At least one element each.
bool may_overlap(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_alias_of(b)) return false;
  auto first = [](const at::Tensor& t) { return t.storage_offset() * static_cast<int64_t>(t.itemsize()); };
  auto last = [&](const at::Tensor& t) { return first(t) + extent(t) * static_cast<int64_t>(t.itemsize()); };
  return first(a) < last(b) && first(b) < last(a);
}

at::Tensor expanded(const at::Tensor& source, const at::Tensor& destination) {
  if (source.sizes() == destination.sizes()) return source;
  const at::DimVector shape = at::infer_size_dimvector(destination.sizes(), source.sizes());
  TORCH_CHECK(destination.sizes() == shape, "output with shape ", destination.sizes(),
              " doesn't match the broadcast shape ", c10::IntArrayRef(shape));
  return source.expand(destination.sizes());
}

void copy_strided(const at::Tensor& destination, at::Tensor source, bool non_blocking) {
  const at::Tensor to = stored(destination);
  if (to.scalar_type() != source.scalar_type()) source = source.resolve_conj().resolve_neg();
  at::Tensor from = stored(source);
  if (!is_same_memory(to, from)) {
    if (on_fl(to) && to.device() == from.device() && may_overlap(to, from)) {
      at::Tensor apart = empty_on(owner(from), from.scalar_type(), from.sizes());
      copy_within(apart, from);
      from = std::move(apart);
    }
    copy_values(to, from, non_blocking);
  }
  flip(to, destination, source);
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  const bool is_plain = self.defined() && source.defined() && !self._is_zerotensor() && !source._is_zerotensor() &&
                        !self.is_meta() && !source.is_meta();
  if (C10_UNLIKELY(!is_plain)) return at::native::copy_(self, source, non_blocking);
  copy_tensor(self, source, non_blocking);
  return self;
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& destination, bool non_blocking) {
  copy_tensor(destination, source, non_blocking);
  return destination;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& destination) {
  destination.resize_(source.sizes());
  copy_tensor(destination, source, /*non_blocking=*/false);
  return destination;
}

at::Scalar local_scalar_dense(const at::Tensor& self) { return at::_local_scalar_dense(to_host(self)); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("copy_", &copy_);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar_dense);
}

}  // namespace

void copy_tensor(const at::Tensor& destination, const at::Tensor& source, bool non_blocking) {
  TORCH_CHECK(destination.layout() == c10::kStrided && source.layout() == c10::kStrided &&
                  !destination.is_quantized() && !source.is_quantized(),
              "copies to and from fl devices take strided tensors that are not quantized, got ", source.layout(), " ",
              source.scalar_type(), " on ", source.device(), " and ", destination.layout(), " ",
              destination.scalar_type(), " on ", destination.device());
  if (destination.is_same(source)) return;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::Tensor from = expanded(source, destination);
  at::assert_no_internal_overlap(destination);
  if (destination.numel() == 0) return;
  copy_strided(destination, std::move(from), non_blocking);
}

at::Tensor to_host(const at::Tensor& source) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (source.numel() == 0) return empty_host(source.scalar_type(), source.sizes(), source.strides());
  at::Tensor values = read(stored(source));
  if (source.is_conj()) values = values.conj();
  if (source.is_neg()) values = values._neg_view();
  return values.resolve_conj().resolve_neg();
}

at::Tensor to_device(const at::Tensor& source, Device& device) {
  if (source._is_zerotensor()) return empty_on(device, source.scalar_type(), source.sizes()).zero_();
  at::Tensor out = source.is_non_overlapping_and_dense()
                       ? empty_on(device, source.scalar_type(), source.sizes(), source.strides())
                       : empty_on(device, source.scalar_type(), source.sizes(),
                                  at::infer_dense_strides(source.sizes(), source.strides()));
  copy_tensor(out, source, /*non_blocking=*/false);
  return out;
}

}  // namespace torch_fl
