#include "canonical.h"

#include "allocator.h"
#include "copy.h"
#include "core/error.h"
#include "dtype.h"
#include "factories.h"

namespace torch_fl {

void fill(Device& device, const at::Tensor& made, const fl_arg& number, uint32_t dtype) {
  if (made.numel() == 0) return;
  Span span = span_of(made);
  VendorError error;
  Stream& stream = current_stream(device);
  check(device.vendor.memory.fill(stream.handle(), span.base, span.byte_offset, bits_of(number, dtype),
                                  uint32_t(made.itemsize()), uint64_t(made.numel()), error.out()),
        error, stream, "fill with a number that stands for a tensor");
}

at::Tensor filled(Device& device, const fl_arg& number, uint32_t dtype, c10::IntArrayRef sizes) {
  at::Tensor made = empty_on(device, scalar_type(dtype), sizes);
  fill(device, made, number, dtype);
  return made;
}

at::Tensor cast(Device& device, const at::Tensor& tensor, uint32_t dtype) {
  at::Tensor made = tensor.is_non_overlapping_and_dense()
                        ? empty_on(device, scalar_type(dtype), tensor.sizes(), tensor.strides())
                        : empty_on(device, scalar_type(dtype), tensor.sizes());
  copy_tensor(made, tensor, /*non_blocking=*/false);
  return made;
}

}  // namespace torch_fl
