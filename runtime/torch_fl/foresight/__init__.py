"""Which tier will serve each operator of a model, told before any of them runs on the device.

A forward and backward pass runs over tensors that claim to be on the device and have no memory. Each operator that
arrives at the device is led to its tier as the bridge leads it; of what only the bridge knows, the bridge is asked.
"""
