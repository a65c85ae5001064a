"""Trains the same CNN with its convolutions on one vendor's device and its last layer on another's, in one process.

    TORCH_FL_VENDORS=reference,reference_inline python examples/split.py --epochs 5

Only where the model is cut does the code name a device: `.to()` carries activations forward and, in the backward pass,
their gradients back.
"""

import sys

import cnn
import digits
import torch
import torch_fl


class Split(cnn.SimpleCNN):
    """SimpleCNN, cut before its last layer."""

    def __init__(self, first: torch.device, second: torch.device) -> None:
        super().__init__()
        self.second = second
        self.to(first)
        self.fc.to(second)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(torch.relu(self.conv1(x)))
        x = self.pool(torch.relu(self.conv2(x)))
        return self.fc(x.view(x.size(0), -1).to(self.second))


def two_vendors() -> tuple[torch.device, torch.device]:
    """The first device, and the first that is another vendor's."""
    usable = [device for device in torch_fl.list_devices() if device.usable]
    others = [device for device in usable if device.vendor != usable[0].vendor]
    if not others:
        sys.exit("devices of two vendors are needed: set TORCH_FL_VENDORS=reference,reference_inline, or your own two")
    return torch.device("fl", usable[0].index), torch.device("fl", others[0].index)


def main() -> None:
    options = digits.arguments().parse_args()
    first, second = two_vendors()
    learn, held_out = digits.read()
    torch.manual_seed(options.seed)
    model = Split(first, second)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = torch.nn.CrossEntropyLoss()
    loader = digits.batches(learn, options.images, options.seed)
    for epoch in range(options.epochs):
        for data, target in loader:
            optimizer.zero_grad()
            loss = criterion(model(data.to(first)), target.to(second))
            loss.backward()
            optimizer.step()
        print(f"Epoch {epoch}, Loss: {loss.item()}")
    digits.say(f"{first} and {second}", digits.right(model, first, held_out))


if __name__ == "__main__":
    main()
