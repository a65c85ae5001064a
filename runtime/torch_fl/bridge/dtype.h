// Torch's scalar types and the interface's frozen dtype numbers.
#pragma once
#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>

#include "torch_fl/plugin.h"

namespace torch_fl {

namespace dtype_table {
constexpr int kScalarTypes = int(c10::ScalarType::NumOptions);
constexpr std::array<uint8_t, kScalarTypes> make() {
  std::array<uint8_t, kScalarTypes> table{};
  table[size_t(c10::ScalarType::Bool)] = FL_DTYPE_BOOL;
  table[size_t(c10::ScalarType::Byte)] = FL_DTYPE_U8;
  table[size_t(c10::ScalarType::Char)] = FL_DTYPE_I8;
  table[size_t(c10::ScalarType::Short)] = FL_DTYPE_I16;
  table[size_t(c10::ScalarType::Int)] = FL_DTYPE_I32;
  table[size_t(c10::ScalarType::Long)] = FL_DTYPE_I64;
  table[size_t(c10::ScalarType::UInt16)] = FL_DTYPE_U16;
  table[size_t(c10::ScalarType::UInt32)] = FL_DTYPE_U32;
  table[size_t(c10::ScalarType::UInt64)] = FL_DTYPE_U64;
  table[size_t(c10::ScalarType::Half)] = FL_DTYPE_F16;
  table[size_t(c10::ScalarType::BFloat16)] = FL_DTYPE_BF16;
  table[size_t(c10::ScalarType::Float)] = FL_DTYPE_F32;
  table[size_t(c10::ScalarType::Double)] = FL_DTYPE_F64;
  table[size_t(c10::ScalarType::ComplexHalf)] = FL_DTYPE_C32;
  table[size_t(c10::ScalarType::ComplexFloat)] = FL_DTYPE_C64;
  table[size_t(c10::ScalarType::ComplexDouble)] = FL_DTYPE_C128;
  table[size_t(c10::ScalarType::Float8_e4m3fn)] = FL_DTYPE_F8E4M3FN;
  table[size_t(c10::ScalarType::Float8_e5m2)] = FL_DTYPE_F8E5M2;
  return table;
}
constexpr std::array<uint8_t, kScalarTypes> table = make();
}  // namespace dtype_table

// FL_DTYPE_NONE where the interface has no such dtype.
constexpr uint32_t fl_dtype(c10::ScalarType type) noexcept {
  return unsigned(type) < unsigned(dtype_table::kScalarTypes) ? dtype_table::table[size_t(type)] : FL_DTYPE_NONE;
}

// ScalarType::Undefined for an unknown number.
constexpr c10::ScalarType scalar_type(uint32_t dtype) noexcept {
  if (dtype == FL_DTYPE_NONE) return c10::ScalarType::Undefined;
  for (int i = 0; i < dtype_table::kScalarTypes; ++i)
    if (dtype_table::table[size_t(i)] == dtype) return c10::ScalarType(i);
  return c10::ScalarType::Undefined;
}

}  // namespace torch_fl
