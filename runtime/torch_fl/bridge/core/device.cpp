#include "device.h"

#include "error.h"
#include "fork.h"
#include "pool.h"
#include "profile.h"
#include "route.h"
#include "stream.h"
#include "wait.h"

namespace torch_fl {

Device::Device(int index_, const Vendor& vendor_, int vendor_index_, fl_device handle_, const fl_device_info& info_)
    : index(index_),
      vendor(vendor_),
      vendor_index(vendor_index_),
      handle(handle_),
      info(info_),
      is_inline(info_.execution_model == FL_EXEC_INLINE),
      pool_(std::make_unique<Pool>(*this)),
      streams_(std::make_unique<StreamSet>(*this)),
      routes_(std::make_unique<RouteTable>(*this)) {}

Device::~Device() = default;

void Device::synchronize() {
  NotedWait noted(*this);
  VendorError error;
  fl_status status = vendor.device.sync(handle, kSliceNs, error.out());
  if (status == FL_OK) return;
  if (status != FL_TIMEOUT && status != FL_ASYNC_FAILURE) check_failed(status, error, *this, "synchronize");

  // Stream by stream. After a timeout, because calling again would wait for what other threads submitted meanwhile, for
  // ever if they are quick enough. After a failure, to find whose it is: it may be that of a handle which a renewed
  // stream no longer uses, and has been raised before.
  if (check_signals != nullptr) check_signals();
  std::string failures = "synchronize of streams";
  int count = 0;
  streams_->for_each([&](Stream& stream) {
    VendorError later;
    VendorError& stream_error = count == 0 ? error : later;  // the first failure's text is the one to show
    fl_status stream_status = stream.wait(stream_error);
    if (stream_status == FL_OK) return;
    if (stream_status != FL_ASYNC_FAILURE) check_failed(stream_status, stream_error, stream, "synchronize");
    stream.renew();
    failures += (count++ == 0 ? " " : ", ") + std::to_string(stream.id);
  });
  if (count > 0) check_failed(FL_ASYNC_FAILURE, error, *this, failures);
}

}  // namespace torch_fl
