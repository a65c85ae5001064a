"""Trains the CNN of cnn.py, unchanged, on handwritten digits, and says how many unseen ones it then reads right.

    python examples/digits.py --epochs 5                       # on fl:0
    python examples/digits.py --epochs 5 --device fl:0 cpu     # one after the other, from the same seed

Needs scikit-learn for its 1797 images of 8x8 grey values. Weights and order of batches come from the CPU's generator:
every device begins with the same numbers, and what differs afterwards is rounding. A slow device gets fewer images:
`--images 200`.
"""

import argparse
from unittest.mock import patch

import cnn
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset, TensorDataset

BATCH = 32
HELD_OUT = 360


def read() -> tuple[TensorDataset, TensorDataset]:
    """(to learn from, held out): images [1, 28, 28] of values in [0, 1], digits int64 []."""
    found = load_digits()
    grey = torch.tensor(found.images, dtype=torch.float32).unsqueeze(1) / 16  # grey values are 0 to 16
    images = torch.nn.functional.interpolate(grey, size=(28, 28), mode="bilinear")
    digits = torch.tensor(found.target)
    return (
        TensorDataset(images[:-HELD_OUT], digits[:-HELD_OUT]),
        TensorDataset(images[-HELD_OUT:], digits[-HELD_OUT:]),
    )


def batches(dataset: Dataset, count: int, seed: int) -> DataLoader:
    """The first `count` images in batches, shuffled anew each epoch, in the same order for the same seed."""
    chosen = torch.utils.data.Subset(dataset, range(min(count, len(dataset))))
    return DataLoader(chosen, BATCH, shuffle=True, generator=torch.Generator().manual_seed(seed))


def fit(model: cnn.SimpleCNN, device: torch.device, loader: DataLoader, epochs: int) -> None:
    """cnn.train on that device; the model is the caller's, where cnn.train makes one that it keeps to itself."""
    with patch.object(cnn, "device", device), patch.object(cnn, "SimpleCNN", lambda: model):
        cnn.train(loader, epochs)


@torch.no_grad()
def right(model: torch.nn.Module, device: torch.device, held_out: Dataset) -> int:
    """How many of the images the model reads right. device: where it takes them."""
    model.eval()
    return sum(
        int((model(images.to(device)).argmax(1).cpu() == digits).sum()) for images, digits in DataLoader(held_out, 120)
    )


def arguments() -> argparse.ArgumentParser:
    """What digits.py and split.py have in common."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--images", type=int, default=10**6, help="learn from the first so many alone")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def say(where: str, count: int) -> None:
    print(f"{where}: {count} of {HELD_OUT} held-out digits right, {count / HELD_OUT:.1%}")


def main() -> None:
    parser = arguments()
    parser.add_argument("--device", nargs="+", default=["fl:0"])
    options = parser.parse_args()
    learn, held_out = read()
    for name in options.device:
        device = torch.device(name)
        torch.manual_seed(options.seed)
        model = cnn.SimpleCNN()
        fit(model, device, batches(learn, options.images, options.seed), options.epochs)
        say(name, right(model, device, held_out))


if __name__ == "__main__":
    main()
