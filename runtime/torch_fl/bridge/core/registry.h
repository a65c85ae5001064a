// What discovery needs of the list of devices.
#pragma once

namespace torch_fl {

int place_count();
// Closes the devices from place `count` on and takes their places away. Nobody may be using them.
void truncate_places(int count);
// For a forked child: see refuse_all_calls.
void refuse_calls_of_all_vendors();
// From the first call on, children of this process may not use its vendors.
void watch_devices();

}  // namespace torch_fl
