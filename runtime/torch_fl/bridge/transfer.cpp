#include "transfer.h"

#include <algorithm>
#include <memory>
#include <string>

#include "allocator.h"
#include "core/profile.h"

namespace torch_fl {
namespace {

// Large enough that the vendor's copy dominates, small enough to hold two of them for any copy.
constexpr uint64_t kStagingBytes = 16 << 20;

thread_local uint64_t moved = 0;

std::string name_of(const Place& place) {
  return place.device == nullptr ? "the host" : "fl:" + std::to_string(place.device->index);
}

// Whether the device may still write to memory that it was given earlier: after a wait that ended early.
bool still_runs(Stream& stream) {
  return stream.device.vendor.stream.query(stream.handle(), nullptr) == FL_NOT_READY;
}

// Two host buffers, so that the source's vendor fills one while the destination's vendor reads the other.
class Staging {
 public:
  explicit Staging(uint64_t bytes) : bytes_(std::min(bytes, kStagingBytes)) {
    // One piece needs one buffer.
    memory_.reset(new char[bytes > kStagingBytes ? 2 * bytes_ : bytes_]);
  }
  Place place(uint64_t piece) const {
    return {nullptr, reinterpret_cast<uint64_t>(memory_.get()) + (piece % 2) * bytes_, 0};
  }
  uint64_t bytes() const { return bytes_; }
  void leak() { memory_.release(); }

 private:
  uint64_t bytes_;
  std::unique_ptr<char[]> memory_;
};

Place at_byte(const Place& place, uint64_t bytes) { return {place.device, place.base, place.offset + bytes}; }

void move_through_host(const Place& destination, Stream& to, const Place& source, Stream& from, uint64_t bytes) {
  Staging staging(bytes);
  const uint64_t pieces = (bytes + staging.bytes() - 1) / staging.bytes();
  auto piece_bytes = [&](uint64_t piece) { return std::min(staging.bytes(), bytes - piece * staging.bytes()); };
  Event filled[2] = {{from.device, false}, {from.device, false}};
  auto fetch = [&](uint64_t piece) {
    submit_copy(from, staging.place(piece), at_byte(source, piece * staging.bytes()), piece_bytes(piece));
    filled[piece % 2].record(from);
  };
  try {
    fetch(0);
    for (uint64_t piece = 0; piece < pieces; piece++) {
      if (piece + 1 < pieces) fetch(piece + 1);
      filled[piece % 2].block(to);
      // Captured before this returns, so the buffer is free for the piece after the next.
      submit_copy(to, at_byte(destination, piece * staging.bytes()), staging.place(piece), piece_bytes(piece));
    }
  } catch (...) {
    from.renew();  // an event reports its stream's failure, and leaves it in place
    if (still_runs(from)) staging.leak();
    throw;
  }
}

}  // namespace

Place place_of(const at::TensorBase& tensor) {
  if (tensor.is_cpu()) {
    const uint64_t bytes = static_cast<uint64_t>(tensor.storage_offset()) * tensor.itemsize();
    return {nullptr, reinterpret_cast<uint64_t>(tensor.storage().data()) + bytes, 0};
  }
  const Span span = span_of(tensor);
  return {&device_of(tensor.device()), span.base, span.byte_offset};
}

void submit_copy(Stream& stream, const Place& destination, const Place& source, uint64_t bytes) {
  fl_copy_args args{};
  args.struct_size = sizeof args;
  args.kind = FL_KIND_COPY_ARGS;
  args.bytes = bytes;
  args.dst_base = destination.base;
  args.dst_offset = destination.offset;
  args.src_base = source.base;
  args.src_offset = source.offset;
  if (destination.device != nullptr) {
    args.dst_space = FL_SPACE_DEVICE;
    args.dst_device = destination.device->handle;
  }
  if (source.device != nullptr) {
    args.src_space = FL_SPACE_DEVICE;
    args.src_device = source.device->handle;
  }
  VendorError error;
  check(stream.device.vendor.memory.copy(stream.handle(), &args, error.out()), error, stream, [&] {
    return "copy of " + std::to_string(bytes) + " bytes from " + name_of(source) + " to " + name_of(destination);
  });
  const bool to_device = source.device == nullptr;
  const bool to_host = destination.device == nullptr;
  if (to_device || to_host) moved += bytes;
  note_moved(stream.device, to_device ? bytes : 0, to_host ? bytes : 0);
}

void submit_zeros(Stream& stream, const Place& destination, uint64_t bytes) {
  VendorError error;
  check(stream.device.vendor.memory.fill(stream.handle(), destination.base, destination.offset, 0, 1, bytes,
                                         error.out()),
        error, stream, [&] { return "fill of " + std::to_string(bytes) + " bytes with zeros"; });
  note_served(stream.device, ServedBy::kMemory);
}

void order(Stream& earlier, Stream& later) {
  if (&earlier == &later) return;
  Event event(earlier.device, false);
  event.record(earlier);
  event.block(later);
}

void move_between(const Place& destination, const Place& source, uint64_t bytes) {
  Stream& from = current_stream(*source.device);
  Stream& to = current_stream(*destination.device);
  if (&from.device.vendor != &to.device.vendor) {
    move_through_host(destination, to, source, from, bytes);
    // What comes after on the source's stream may overwrite the source: it has been read, the calling thread waited.
    return;
  }
  order(to, from);
  submit_copy(from, destination, source, bytes);
  order(from, to);
}

void wait_for_host_write(Stream& stream, const at::TensorBase& target) {
  try {
    stream.synchronize();
  } catch (...) {
    if (still_runs(stream)) new at::TensorBase(target);
    throw;
  }
}

bool is_pinned_for(const Device& device, const void* pointer) {
  const fl_pinned_api* pinned = device.vendor.pinned;
  int32_t answer = 0;
  return pinned != nullptr && pinned->is_pinned(pointer, &answer, nullptr) == FL_OK && answer == 1;
}

uint64_t bytes_moved() noexcept { return moved; }

}  // namespace torch_fl
