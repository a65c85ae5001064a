#include "error.h"

#include <algorithm>
#include <cstring>

#include "device.h"
#include "stream.h"

namespace torch_fl {

std::string VendorError::text() const {
  // A vendor that misreports `length` must not make us read past our own buffer.
  return std::string(text_, strnlen(text_, sizeof text_));
}

std::string status_name(fl_status status) {
  static const char* const names[] = {"FL_OK",
                                      "FL_NOT_READY",
                                      "FL_INVALID_ARGUMENT",
                                      "FL_FAILED_PRECONDITION",
                                      "FL_OUT_OF_RESOURCES",
                                      "FL_INTERNAL",
                                      "FL_OUT_OF_MEMORY",
                                      "FL_UNIMPLEMENTED",
                                      "FL_TIMEOUT",
                                      "FL_ASYNC_FAILURE",
                                      "FL_DEVICE_LOST"};
  if (status >= FL_OK && status <= FL_DEVICE_LOST) return names[status];
  return "FL_INTERNAL (code " + std::to_string(status) + ")";
}

namespace {

ErrorClass class_of(fl_status status) {
  if (status == FL_OUT_OF_MEMORY) return ErrorClass::kOutOfMemory;
  if (status == FL_UNIMPLEMENTED) return ErrorClass::kNotImplemented;
  return ErrorClass::kRuntime;
}

const char* advice(fl_status status) {
  if (status == FL_ASYNC_FAILURE) {
    return " [an operation submitted earlier has failed: what was submitted after it did not run]";
  }
  if (status == FL_DEVICE_LOST) return " [the device is of no use to this process any more: start a new one]";
  return "";
}

}  // namespace

void check_failed(fl_status status, const VendorError& error, const Device& device, const std::string& what) {
  std::string message =
      "fl:" + std::to_string(device.index) + " (" + device.vendor.name + "): " + what + ": " + status_name(status);
  std::string text = error.text();
  if (!text.empty()) message += ": " + text;
  raise(class_of(status), message + advice(status));
}

void check_failed(fl_status status, const VendorError& error, Stream& stream, const std::string& what) {
  if (status == FL_ASYNC_FAILURE) stream.renew();
  check_failed(status, error, static_cast<const Device&>(stream.device), what);
}

}  // namespace torch_fl
