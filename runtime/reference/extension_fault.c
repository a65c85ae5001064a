/* extension_fault.c - "fl.fault": makes the next operation of a stream fail or take longer. */
#include "core.h"

static fl_status fault_fail_next(fl_stream stream, fl_status status, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(stream, "stream", err));
  if (status != FL_ASYNC_FAILURE && status != FL_DEVICE_LOST) {
    return fl_fail(err, FL_INVALID_ARGUMENT, "status %d cannot be injected", (int)status);
  }
  return fl_engine_inject(&stream->engine, status, 0, err);
}

static fl_status fault_delay_next(fl_stream stream, uint64_t nanoseconds, fl_error* err) {
  if (!fl_error_usable(err)) return FL_INVALID_ARGUMENT;
  FL_TRY(fl_check_pointer(stream, "stream", err));
  return fl_engine_inject(&stream->engine, FL_OK, nanoseconds, err);
}

const fl_fault_api ref_fault = {
    .struct_size = sizeof(fl_fault_api),
    .kind = FL_KIND_EXT_FAULT,
    .revision = 1,
    .fail_next = fault_fail_next,
    .delay_next = fault_delay_next,
};
