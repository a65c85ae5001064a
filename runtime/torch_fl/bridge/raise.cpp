#include <utility>

#include <c10/util/Exception.h>

#include "core/error.h"

namespace torch_fl {
namespace {

// Torch turns each of these classes into the Python exception of the same name.
template <class E>
[[noreturn]] void throw_as(const std::string& message) {
  throw E(c10::SourceLocation{"raise", "torch_fl", 0}, message);
}

}  // namespace

void raise(ErrorClass error_class, const std::string& message) {
  switch (error_class) {
    case ErrorClass::kValue:
      throw_as<c10::ValueError>(message);
    case ErrorClass::kIndex:
      throw_as<c10::IndexError>(message);
    case ErrorClass::kNotImplemented:
      throw_as<c10::NotImplementedError>(message);
    case ErrorClass::kOutOfMemory:
      throw_as<c10::OutOfMemoryError>(message);
    case ErrorClass::kRuntime:
      break;
  }
  throw_as<c10::Error>(message);
}

}  // namespace torch_fl
