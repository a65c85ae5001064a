"""Entry point of torch's group `torch.backends`: runs at the end of every `import torch`, so it imports nothing."""

import os


def load() -> None:
    """Import torch_fl where TORCH_FL_AUTOLOAD=1 asks for it; else do nothing."""
    if os.environ.get("TORCH_FL_AUTOLOAD") == "1":
        import torch_fl  # noqa: F401
