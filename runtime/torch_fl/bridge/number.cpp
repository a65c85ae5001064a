#include "number.h"

#include <cstring>

#include <c10/core/DynamicCast.h>

#include "dtype.h"

namespace torch_fl {

namespace {

fl_arg plain(uint16_t tag) {
  fl_arg arg;
  std::memset(&arg, 0, sizeof arg);
  arg.tag = tag;
  return arg;
}

fl_arg floating(double value) {
  fl_arg arg = plain(FL_TAG_FLOAT);
  arg.value.f = value;
  return arg;
}

fl_arg integer(int64_t value) {
  fl_arg arg = plain(FL_TAG_INT);
  arg.value.i = value;
  return arg;
}

fl_arg boolean(bool value) {
  fl_arg arg = plain(FL_TAG_BOOL);
  arg.value.i = value;
  return arg;
}

fl_arg unsigned_integer(uint64_t value) {
  if (value <= uint64_t(INT64_MAX)) return integer(int64_t(value));
  fl_arg arg = plain(FL_TAG_UINT);
  arg.value.u = value;
  return arg;
}

// `read` gives the value as a type: read((float*)nullptr).
template <class Read>
fl_arg convert(uint32_t dtype, Read&& read) {
  switch (dtype) {
    case FL_DTYPE_BOOL:
      return boolean(read(static_cast<bool*>(nullptr)));
    case FL_DTYPE_U8:
      return integer(read(static_cast<uint8_t*>(nullptr)));
    case FL_DTYPE_I8:
      return integer(read(static_cast<int8_t*>(nullptr)));
    case FL_DTYPE_I16:
      return integer(read(static_cast<int16_t*>(nullptr)));
    case FL_DTYPE_I32:
      return integer(read(static_cast<int32_t*>(nullptr)));
    case FL_DTYPE_I64:
      return integer(read(static_cast<int64_t*>(nullptr)));
    case FL_DTYPE_U16:
      return integer(read(static_cast<uint16_t*>(nullptr)));
    case FL_DTYPE_U32:
      return integer(read(static_cast<uint32_t*>(nullptr)));
    case FL_DTYPE_U64:
      return unsigned_integer(read(static_cast<uint64_t*>(nullptr)));
    case FL_DTYPE_F16:
    case FL_DTYPE_BF16:
    case FL_DTYPE_F32:
    case FL_DTYPE_F8E4M3FN:
    case FL_DTYPE_F8E5M2:
      return floating(double(read(static_cast<float*>(nullptr))));
    default:
      return floating(read(static_cast<double*>(nullptr)));
  }
}

template <class T>
uint64_t bits(T value) {
  uint64_t out = 0;
  std::memcpy(&out, &value, sizeof value);
  return out;
}

}  // namespace

fl_arg number(const c10::Scalar& value, uint32_t dtype) {
  if (dtype == FL_DTYPE_F32 && value.isFloatingPoint()) return floating(double(value.to<float>()));  // the common case
  return convert(dtype, [&](auto* type) { return value.to<std::remove_pointer_t<decltype(type)>>(); });
}

fl_arg number_for_tensor(const c10::Scalar& value, uint32_t dtype) {
  return convert(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    if (value.isFloatingPoint()) return c10::convert<T>(value.toDouble());
    if (value.isBoolean()) return c10::convert<T>(value.toBool());
    if (value.type() == c10::ScalarType::UInt64) return c10::convert<T>(value.toUInt64());
    return c10::convert<T>(value.toLong());
  });
}

fl_arg number_for_tensor(const at::TensorBase& value, uint32_t dtype) {
  const void* data = value.const_data_ptr();
  return convert(dtype, [&](auto* type) {
    return c10::fetch_and_cast<std::remove_pointer_t<decltype(type)>>(value.scalar_type(), data);
  });
}

uint64_t bits_of(const fl_arg& number, uint32_t dtype) {
  switch (dtype) {
    case FL_DTYPE_F16:
      return bits(c10::Half(float(number.value.f)));
    case FL_DTYPE_BF16:
      return bits(c10::BFloat16(float(number.value.f)));
    case FL_DTYPE_F32:
      return bits(float(number.value.f));
    case FL_DTYPE_F64:
      return bits(number.value.f);
    default:
      return number.value.u;  // integers are in range, so that the low bytes are theirs
  }
}

}  // namespace torch_fl
