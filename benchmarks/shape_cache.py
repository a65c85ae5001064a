"""The general lane on small tensors: a call whose output shape is known against one that the Meta key is asked for.

python benchmarks/shape_cache.py [--device fl:0] [--out FILE]. Each call of the subject repeats a shape, each call of
the baseline has one that the cache has not seen. The operators' kernels of the fast lane are replaced first.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch_fl
from paired import compare, publish
from torch_fl import _bridge as bridge

#: Name -> what makes a call from a tensor.
OPERATORS: dict[str, Callable[[torch.Tensor], object]] = {
    "aten::flip": lambda x: torch.flip(x, (0,)),
    "aten::cumsum": lambda x: torch.cumsum(x, 0),
    "aten::argmax": lambda x: torch.argmax(x, 0),
}


def main() -> None:
    """Print the table; --out writes JSON and a plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="fl:0")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    known = torch.zeros(4, 4, device=options.device)
    for name in OPERATORS:
        refused = bridge.add_general_kernel(name, True)
        assert not refused, refused
    results, hits = [], {}
    for name, call in OPERATORS.items():
        fresh = _fresh(options.device)
        torch_fl.reset_counters()
        results.append(compare(name, lambda call=call: call(known), lambda call=call, f=fresh: call(next(f)), pairs=9))
        hits[name] = {key: n for key, n in torch_fl.counters()[options.device][name].items() if "shape" in key}
    publish("general lane: known shape / new shape", results, options.out, notes={"counters": hits})
    for name, counted in hits.items():
        print(name, counted)


def _fresh(device: str) -> Iterator[torch.Tensor]:
    """Tensors of no shape twice, small all of them: strides tell them apart."""
    base = torch.zeros(1 << 16, device=device)
    for stride in itertools.count(1):
        yield base.as_strided((2, 2), (stride % 30_000 + 1, stride // 30_000))


if __name__ == "__main__":
    main()
