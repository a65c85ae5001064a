"""What `import torch_fl` costs on top of `import torch`, when the bridge is built: whole processes by turns.

python benchmarks/import_time.py [--runs N] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

WITH = "import torch, time; began = time.perf_counter(); import torch_fl; print(time.perf_counter() - began)"
ALONE = "import torch"


def main() -> None:
    """Print milliseconds of the import inside a process, and of whole processes with and without it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    _run(WITH)  # builds the bridge, fills the file cache
    inside, whole_with, whole_alone = [], [], []
    for _ in range(options.runs):
        seconds, said = _run(WITH)
        whole_with.append(seconds)
        inside.append(float(said))
        whole_alone.append(_run(ALONE)[0])
    differences = [mine - other for mine, other in zip(whole_with, whole_alone, strict=True)]
    record = {
        "runs": options.runs,
        "import_torch_fl_ms": _summary(inside),
        "process_with_minus_without_ms": _summary(differences),
        "process_import_torch_ms": _summary(whole_alone),
    }
    print(json.dumps(record, indent=1))
    if options.out is not None:
        options.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _run(code: str) -> tuple[float, str]:
    began = time.perf_counter()
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    return time.perf_counter() - began, said


def _summary(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(value * 1000 for value in seconds)
    return {
        "median": round(statistics.median(ordered), 1),
        "low": round(ordered[len(ordered) // 10], 1),
        "high": round(ordered[-1 - len(ordered) // 10], 1),
    }


if __name__ == "__main__":
    main()
