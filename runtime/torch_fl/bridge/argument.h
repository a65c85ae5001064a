// Arguments of an ATen operator, in the order of the registry's slots, before they have their canonical form.
#pragma once
#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

namespace torch_fl {

// Points to what the kernel got; lives as long as that.
struct Argument {
  enum class Kind : uint8_t { kNone, kTensor, kNumber, kText, kInteger, kBoolean, kFloating };
  Kind kind = Kind::kNone;
  uint32_t bytes = 0;  // of a text, which need not end with NUL
  union {
    const at::Tensor* tensor = nullptr;
    const at::Scalar* number;
    const char* text;
    int64_t integer;  // of kBoolean, too
    double floating;
  };
};

inline Argument argument(const at::Tensor& tensor) {
  Argument out;
  if (!tensor.defined()) return out;
  out.kind = Argument::Kind::kTensor;
  out.tensor = &tensor;
  return out;
}

inline Argument argument(const at::Scalar& number) {
  Argument out;
  out.kind = Argument::Kind::kNumber;
  out.number = &number;
  return out;
}

inline Argument argument(std::string_view text) {
  Argument out;
  out.kind = Argument::Kind::kText;
  out.bytes = uint32_t(text.size());
  out.text = text.data();
  return out;
}

inline Argument argument(int64_t value) {
  Argument out;
  out.kind = Argument::Kind::kInteger;
  out.integer = value;
  return out;
}

inline Argument argument(bool value) {
  Argument out = argument(int64_t(value));
  out.kind = Argument::Kind::kBoolean;
  return out;
}

inline Argument argument(double value) {
  Argument out;
  out.kind = Argument::Kind::kFloating;
  out.floating = value;
  return out;
}

template <class T>
Argument argument(const std::optional<T>& value) {
  return value.has_value() ? argument(*value) : Argument{};
}

}  // namespace torch_fl
