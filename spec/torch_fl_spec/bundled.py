"""Where the vendor kits lie that come with this package: in a checkout, else the copy in the wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def reference() -> Path:
    """Folder of the reference vendor's kit (asynchronous streams, linear addresses)."""
    checkout = _PACKAGE.parents[1] / "runtime" / "reference"
    return checkout if (checkout / "vendor.toml").exists() else _PACKAGE / "bundled_kits" / "reference"


def reference_inline() -> Path:
    """Folder of the same vendor's second personality (inline streams, handle addresses)."""
    return reference() / "inline"


def include_dirs() -> list[Path]:
    """Folders that hold torch_fl/plugin.h and torch_fl/sdk/*.h; one where a wheel has merged them."""
    folders = [_PACKAGE / "include", _PACKAGE.parents[1] / "vendor_kits" / "sdk" / "include"]
    return [folder for folder in folders if (folder / "torch_fl").is_dir()]
