"""Host cost of whole operators on 4 x 4 float32 tensors, no grad, against stock CPU torch.

python benchmarks/op_cost.py [--device fl:0] [--out FILE]. Meant for an INLINE device, whose calls return after the work
(TORCH_FL_VENDORS=reference_inline).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
import torch_fl  # noqa: F401  (makes "fl" a device)
from paired import Action, compare, publish
from torch.nn import functional

#: Name -> what makes a call of operands on one device.
OPERATORS: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Action]] = {
    "add": lambda x, y, c: lambda: torch.add(x, y),
    "sub": lambda x, y, c: lambda: torch.sub(x, y),
    "mul": lambda x, y, c: lambda: torch.mul(x, y),
    "div": lambda x, y, c: lambda: torch.div(x, y),
    "neg": lambda x, y, c: lambda: torch.neg(x),
    "exp": lambda x, y, c: lambda: torch.exp(x),
    "relu": lambda x, y, c: lambda: torch.relu(x),
    "sigmoid": lambda x, y, c: lambda: torch.sigmoid(x),
    "tanh": lambda x, y, c: lambda: torch.tanh(x),
    "gelu": lambda x, y, c: lambda: functional.gelu(x),
    "where": lambda x, y, c: lambda: torch.where(c, x, y),
    "maximum": lambda x, y, c: lambda: torch.maximum(x, y),
    "eq": lambda x, y, c: lambda: torch.eq(x, y),
    "clamp": lambda x, y, c: lambda: torch.clamp(x, -0.5, 0.5),
    "sum(dim)": lambda x, y, c: lambda: torch.sum(x, 1),
    "mean(dim)": lambda x, y, c: lambda: torch.mean(x, 1),
    "mm": lambda x, y, c: lambda: torch.mm(x, y),
    "cat": lambda x, y, c: lambda: torch.cat((x, y)),
    "softmax": lambda x, y, c: lambda: torch.softmax(x, 1),
    "layer_norm": lambda x, y, c: lambda: functional.layer_norm(x, (4,)),
}


def main() -> None:
    """Print the table; --out writes JSON and a plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="fl:0")
    parser.add_argument("--pairs", type=int, default=31)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    host = (x, y, x > 0)
    device = tuple(tensor.to(options.device) for tensor in host)
    with torch.no_grad():
        results = [compare(name, make(*device), make(*host), pairs=options.pairs) for name, make in OPERATORS.items()]
    publish(f"host cost of an operator, 4 x 4 float32: {options.device} / cpu", results, options.out)


if __name__ == "__main__":
    main()
