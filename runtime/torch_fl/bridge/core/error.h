// How a vendor's failure becomes an exception. The core knows no torch: whoever links it defines `raise`.
#pragma once
#include <string>
#include <type_traits>

#include "torch_fl/plugin.h"

namespace torch_fl {

class Device;
class Stream;

enum class ErrorClass {
  kRuntime,         // RuntimeError
  kValue,           // ValueError
  kIndex,           // IndexError
  kNotImplemented,  // NotImplementedError
  kOutOfMemory,     // torch.OutOfMemoryError
};

// Throws. The bridge throws what torch turns into the Python exception; the stress program std::runtime_error.
[[noreturn]] void raise(ErrorClass error_class, const std::string& message);

// Host-owned error text of one call [FL-ERROR-001]; lives on the caller's stack.
class VendorError {
 public:
  VendorError() noexcept : raw_{sizeof(fl_error), FL_KIND_ERROR, FL_OK, 0, 0, text_, sizeof text_, 0} {
    text_[0] = '\0';
  }
  VendorError(const VendorError&) = delete;
  VendorError& operator=(const VendorError&) = delete;

  fl_error* out() noexcept { return &raw_; }
  // The vendor's text, cut at the buffer's end, or "" where it gave none.
  std::string text() const;

 private:
  fl_error raw_;
  char text_[512];
};

// "FL_ASYNC_FAILURE"; unknown codes are "FL_INTERNAL (code n)".
std::string status_name(fl_status status);

// Raises unless FL_OK: "fl:1 (reference): what: FL_INTERNAL: the vendor's text". OUT_OF_MEMORY raises kOutOfMemory,
// UNIMPLEMENTED kNotImplemented, all others kRuntime. `what` names function, operator, shapes: what the reader needs.
[[noreturn]] void check_failed(fl_status status, const VendorError& error, const Device& device,
                               const std::string& what);
// The same for a call that named a stream (every submit, query and sync). FL_ASYNC_FAILURE besides renews the stream:
// its failure has surfaced, and a later wait does not raise it again.
[[noreturn]] void check_failed(fl_status status, const VendorError& error, Stream& stream, const std::string& what);

// where: a `const Device&`, or for calls that named a stream the `Stream&`.
// what: const char*, std::string, or a callable that makes the text only when it is needed.
template <class Where, class What>
inline void check(fl_status status, const VendorError& error, Where&& where, What&& what) {
  if (__builtin_expect(status == FL_OK, 1)) return;
  if constexpr (std::is_invocable_v<What>)
    check_failed(status, error, where, what());
  else
    check_failed(status, error, where, what);
}

}  // namespace torch_fl
