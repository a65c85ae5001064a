"""What Python has to do with the tiers below native kernels: the warning that an operator left its kernels."""

from __future__ import annotations


class FallbackWarning(UserWarning):
    """An operator is computed by others on the device, or on the CPU, since no kernel of the device serves it.

    Given once per operator and tier in a process; torch_fl.counters() has every case.
    """
