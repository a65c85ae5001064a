"""A training step of the examples' CNN with Adam on 64 images of 28 x 28, against stock CPU torch on as many threads as
it likes.

python benchmarks/cnn_step.py [--device fl:0] [--batch 64] [--profile] [--out FILE]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import rich
import torch
import torch_fl
from paired import Action, compare, publish
from torch import nn

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from cnn import SimpleCNN


def step(device: str, batch: int) -> Action:
    """What does one step, complete when it returns: data are on the device, the loss comes back."""
    torch.manual_seed(0)
    model = SimpleCNN().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    data, target = torch.rand(batch, 1, 28, 28).to(device), torch.randint(0, 10, (batch,)).to(device)

    def run() -> float:
        optimizer.zero_grad()
        loss = criterion(model(data), target)
        loss.backward()
        optimizer.step()
        return float(loss)

    return run


def main() -> None:
    """Print the ratio, and with --profile where the device's time goes; --out writes JSON and a plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="fl:0")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=31)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    on_device, on_host = step(options.device, options.batch), step("cpu", options.batch)
    result = compare(f"CNN, batch {options.batch}", on_device, on_host, pairs=options.pairs)
    publish(f"training step: {options.device} / cpu ({torch.get_num_threads()} threads)", [result], options.out)
    if options.profile:
        with torch_fl.profile() as profile:
            for _ in range(5):
                on_device()
        rich.print(profile.table())


if __name__ == "__main__":
    main()
