"""Models of the kinds that users train, small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Case:
    """What torch_fl.coverage takes."""

    model: nn.Module
    inputs: tuple[Tensor, ...]
    loss: Callable[..., Tensor] | None = None
    targets: tuple[Tensor, ...] = ()


class Convolutions(nn.Module):
    """Two convolutions with pooling, and a classifier of digits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1)
        self.conv2 = nn.Conv2d(4, 8, 3, padding=1)
        self.fc = nn.Linear(8 * 2 * 2, 10)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        """x: images, [batch, 1, 8, 8]."""
        x = self.pool(torch.relu(self.conv1(x)))
        x = self.pool(torch.relu(self.conv2(x)))
        scores: Tensor = self.fc(x.view(x.size(0), -1))
        return scores


class Attention(nn.Module):
    """Layer norm, attention of one head, GELU, and a way around them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)
        self.gelu = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        """x: [batch, length, 8]."""
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        weights = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1)
        result: Tensor = self.gelu(self.out(weights @ v)) + x
        return result


def perceptron() -> Case:
    """Linear, ReLU, Linear, with gradients of the outputs themselves."""
    return Case(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), (torch.rand(3, 8),))


def convolutions() -> Case:
    """With cross entropy."""
    return Case(Convolutions(), (torch.rand(2, 1, 8, 8),), nn.CrossEntropyLoss(), (torch.tensor([1, 7]),))


def attention() -> Case:
    """With a mean for a loss."""
    return Case(Attention(), (torch.rand(2, 5, 8),), torch.mean)


def embedding() -> Case:
    """Integers in."""
    return Case(nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 2)), (torch.tensor([[1, 2, 9]]),))


def normalised() -> Case:
    """Buffers that a forward pass changes, and random numbers."""
    return Case(nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.SiLU()), (torch.rand(4, 8),))


def halves() -> Case:
    """bfloat16, with a loss in single precision."""
    layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16)).bfloat16()
    return Case(layers, (torch.rand(3, 8).bfloat16(),), lambda y: y.float().square().mean())


CASES: dict[str, Callable[[], Case]] = {
    "perceptron": perceptron,
    "convolutions": convolutions,
    "attention": attention,
    "embedding": embedding,
    "normalised": normalised,
    "halves": halves,
}
