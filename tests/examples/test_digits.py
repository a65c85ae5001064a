"""The examples train: on a device, and split over devices of two vendors, they come where the CPU comes.

Rounding is not the same on any two devices, and training carries it on. How far it may carry the loss is taken from
the CPU itself: from trainings that begin with weights perturbed by the error bound of the longest sum of the forward
pass, gamma_n = n u / (1 - n u) (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1), n = 3136
products of the last layer, u = 2^-24.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass

import pytest

from tests.runtime.processes import LONGEST, ROOT, run_python

SIZE = ("--epochs", "2", "--images", "128")
PERTURBED = """
import sys
sys.path.insert(0, "examples")
import cnn, digits, torch

nu = 3136 * 2.0**-24
learn, held_out = digits.read()
for draw in range(4):
    torch.manual_seed(0)
    model = cnn.SimpleCNN()
    generator = torch.Generator().manual_seed(draw)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1 + nu / (1 - nu) * (2 * torch.rand(weight.shape, generator=generator) - 1))
    digits.fit(model, torch.device("cpu"), digits.batches(learn, 128, 0), 2)
    digits.say("cpu", 0)
"""


@dataclass(frozen=True)
class Training:
    """Losses by epoch, and how many held-out digits were read right."""

    losses: tuple[float, ...]
    right: int


def trainings(output: str) -> dict[str, list[Training]]:
    """By the name of the device."""
    found: dict[str, list[Training]] = {}
    losses: list[float] = []
    for line in output.splitlines():
        if match := re.fullmatch(r"Epoch (\d+), Loss: (\S+)", line):
            assert int(match[1]) == len(losses)
            losses.append(float(match[2]))
        else:
            match = re.fullmatch(r"(.+): (\d+) of 360 held-out digits right, [\d.]+%", line)
            assert match, line
            found.setdefault(match[1], []).append(Training(tuple(losses), int(match[2])))
            losses = []
    return found


def example(name: str, *arguments: str, vendors: str = "reference") -> subprocess.CompletedProcess[str]:
    environment = {"TORCH_FL_VENDORS": vendors, "TORCH_FL_ON_FALLBACK": "ignore"}
    return subprocess.run(
        [sys.executable, f"examples/{name}", *arguments],
        env=os.environ | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )


@pytest.fixture(scope="module")
def trained() -> dict[str, Training]:
    """On fl:0 and on the CPU."""
    done = example("digits.py", "--device", "fl:0", "cpu", *SIZE)
    assert done.returncode == 0, done.stderr
    return {name: each for name, (each,) in trainings(done.stdout).items()}


@pytest.fixture(scope="module")
def noise(trained: dict[str, Training]) -> tuple[float, ...]:
    """How far rounding may carry the loss, by epoch."""
    done = run_python(PERTURBED)
    assert done.returncode == 0, done.stderr
    perturbed = trainings(done.stdout)["cpu"]
    assert len(perturbed) == 4
    epochs = enumerate(trained["cpu"].losses)
    return tuple(max(abs(each.losses[epoch] - loss) for each in perturbed) for epoch, loss in epochs)


def assert_alike(found: Training, cpu: Training, noise: tuple[float, ...]) -> None:
    assert len(found.losses) == len(noise) == 2
    for loss, expected, most in zip(found.losses, cpu.losses, noise, strict=True):
        assert abs(loss - expected) <= most
    assert abs(found.right - cpu.right) <= 3  # of 360, less than a point


def test_the_cpu_learns(trained: dict[str, Training]) -> None:
    assert trained["cpu"].losses[1] < trained["cpu"].losses[0]
    assert trained["cpu"].right > 90  # of 360; without having learnt anything, 36


def test_a_device_learns_what_the_cpu_learns(trained: dict[str, Training], noise: tuple[float, ...]) -> None:
    assert_alike(trained["fl:0"], trained["cpu"], noise)


def test_two_vendors_learn_it_together(trained: dict[str, Training], noise: tuple[float, ...]) -> None:
    done = example("split.py", *SIZE, vendors="reference,reference_inline")
    assert done.returncode == 0, done.stderr
    assert_alike(trainings(done.stdout)["fl:0 and fl:2"][0], trained["cpu"], noise)


def test_one_vendor_alone_is_told_what_to_do() -> None:
    done = example("split.py")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("devices of two vendors are needed: set TORCH_FL_VENDORS=")
