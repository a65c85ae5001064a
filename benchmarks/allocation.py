"""torch.empty and its release on a device against CPU's: python benchmarks/allocation.py [--out FILE]."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch_fl  # noqa: F401  (makes "fl" a device)
from paired import compare, publish

SIZES = [64 << shift for shift in range(0, 21, 2)]  # 64 B ... 64 MiB


def main() -> None:
    """Print the table; --out writes JSON and a plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="fl:0")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device, host = torch.device(options.device), torch.device("cpu")
    results = []
    for size in SIZES:
        results.append(
            compare(
                f"empty({_named(size)})",
                lambda size=size: torch.empty(size, dtype=torch.uint8, device=device),
                lambda size=size: torch.empty(size, dtype=torch.uint8, device=host),
            )
        )
    publish(f"torch.empty and release: {options.device} / cpu", results, options.out)


def _named(size: int) -> str:
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size // scale} {unit}"
    return f"{size} B"


if __name__ == "__main__":
    main()
