"""Is the device still there? A round trip of 64 bytes that tells a broken device from a broken rule."""

from __future__ import annotations

from torch_fl_conformance.driver_client import Driver
from torch_fl_conformance.facade import Abi
from torch_fl_conformance.failures import DriverHung, RuleViolated


def is_healthy(driver: Driver) -> bool:
    """Whether each device takes 64 bytes and gives them back."""
    pattern = bytes(range(64))
    try:
        abi = Abi(driver)
        for index in range(len(abi.devices)):
            stream = abi.stream(f"d{index}")
            block = abi.alloc(f"d{index}", 64)
            abi.upload(stream, block, pattern)
            back = abi.download(stream, block)
            abi.destroy(stream)
            abi.free(block)
            if back != pattern:
                return False
    except (RuleViolated, DriverHung):
        return False
    return True
