"""Copies of contiguous float32 to, from and between devices against one memcpy of the same bytes on the CPU.

python benchmarks/copies.py [--devices fl:0 fl:1] [--out FILE]. Each copy is waited for.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch_fl  # noqa: F401  (makes "fl" a device)
from paired import compare, publish

SIZES = [4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]


def main() -> None:
    """Print the table; --out writes JSON and a plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", nargs="+", default=["fl:0"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    places = ["cpu", *options.devices]
    results = []
    for size in SIZES:
        baseline = (torch.ones(size // 4), torch.empty(size // 4))
        for source in places:
            for target in places:
                if source == target == "cpu":
                    continue
                left, right = torch.ones(size // 4, device=source), torch.empty(size // 4, device=target)
                results.append(
                    compare(
                        f"{source} -> {target}, {size >> 10} KiB",
                        lambda left=left, right=right: _copied(left, right),
                        lambda pair=baseline: pair[1].copy_(pair[0]),
                        pairs=15,
                        block_seconds=0.02,
                    )
                )
    publish("copies / memcpy", results, options.out)


def _copied(source: torch.Tensor, target: torch.Tensor) -> None:
    target.copy_(source)
    if target.device.type == "fl":
        torch.fl.synchronize(target.device)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
