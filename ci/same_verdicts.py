"""Certify a vendor with many seeds and compare: `python ci/same_verdicts.py reference --seeds 20 [CERTIFY OPTION...]`.

A verdict must not depend on the seed. One line for each seed; exit 1, with the rows that differ, when the verdicts are
not the same with all seeds or when a run does not certify.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path


def verdicts(vendor: str, seed: int, options: list[str]) -> tuple[int, dict[str, str]]:
    """Exit code of one certification, and row -> verdict."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["torch-fl", "certify", vendor, "--seed", str(seed), "--report", folder, *options]
        began = time.monotonic()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        seconds = time.monotonic() - began
        found = next(Path(folder).rglob("report.json"), None)
        if found is None:
            sys.exit(f"seed {seed}: no report (exit {done.returncode})\n{done.stdout[-4000:]}")
        rows = {row["id"]: row for row in json.loads(found.read_text())["rows"]}
    counted = Counter(row["verdict"] for row in rows.values())
    cases = sum(row["cases"] for row in rows.values())
    said = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counted.items()))
    print(f"seed {seed:>4}  exit {done.returncode}  {said}  {cases} cases  {seconds:.0f} s", flush=True)
    return done.returncode, {name: row["verdict"] for name, row in rows.items()}


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description="Certify a vendor with many seeds and compare the verdicts.")
    parser.add_argument("vendor")
    parser.add_argument("--seeds", type=int, default=20, help="how many (20)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (1)")
    arguments, options = parser.parse_known_args()
    runs = {
        seed: verdicts(arguments.vendor, seed, options)
        for seed in range(arguments.first, arguments.first + arguments.seeds)
    }
    base = next(iter(runs.values()))[1]
    for seed, (_, rows) in runs.items():
        for name in sorted(base.keys() | rows.keys()):
            if base.get(name) != rows.get(name):
                print(f"seed {seed}: {name} is {rows.get(name)}, was {base.get(name)}")
    same = all(rows == base for _, rows in runs.values())
    print(f"{len(base)} rows, {len(runs)} seeds: the verdicts are {'the same' if same else 'NOT the same'}")
    return 0 if same and not any(code for code, _ in runs.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
