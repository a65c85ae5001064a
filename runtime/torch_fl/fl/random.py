"""Seeds and states of the devices' default generators. Seeding looks for no device."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.types import Device

from torch_fl import _bridge

from .devices import _get_device_index, device_count


def _get_generator(device: Device = None) -> torch.Generator:
    """The default generator of the device."""
    return _bridge.default_generator(_get_device_index(device))


def manual_seed(seed: int) -> None:
    """Seed the current device's default generator. Negative seeds stand for their value modulo 2**64."""
    _get_generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the default generators of all devices, of those too that are found later."""
    _bridge.seed_default_generators(int(seed) & 0xFFFF_FFFF_FFFF_FFFF)


def seed() -> int:
    """Give the current device's default generator a seed that nobody can foresee; returns it."""
    return _get_generator().seed()


def seed_all() -> int:
    """Give all devices' default generators one seed that nobody can foresee; returns it."""
    chosen = seed()
    manual_seed_all(chosen)
    return chosen


def initial_seed() -> int:
    """The seed of the current device's default generator."""
    return _get_generator().initial_seed()


def get_rng_state(device: Device = "fl") -> torch.Tensor:
    """State of the device's default generator: 16 bytes, seed and offset."""
    return _get_generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device: Device = "fl") -> None:
    """Go back to a state that get_rng_state gave."""
    _get_generator(device).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Go back to the states that get_rng_state_all gave."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
