"""Ed25519 keys of vendors: made here, kept as PEM files, public ones in a registry's `keys/`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from securesystemslib.signer import CryptoSigner, SSlibKey  # type: ignore[attr-defined]

VENDOR_NAME = re.compile(r"[a-z0-9_]{1,64}")
"""Names a registry takes, as plugin.h has them: ASCII, so that no two of them look the same."""


class BadKey(ValueError):
    """A file that holds no Ed25519 key of the wanted kind."""


@dataclass(frozen=True)
class TrustedKey:
    """A public key and the one vendor whose reports it may sign."""

    vendor: str
    key: SSlibKey


def generate(private: Path) -> Path:
    """Write a fresh private key (mode 0600) and beside it `<name>.pub`; the answer is the public file.

    Raises FileExistsError rather than replace a key.
    """
    signer = CryptoSigner.generate_ed25519()
    public = private.with_name(private.name + ".pub")
    if public.exists():
        raise FileExistsError(f"{public} exists")
    private.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(signer.private_bytes)
    public.write_bytes(public_pem(_private(signer.private_bytes, private)))
    return public


def load_signer(private: Path) -> CryptoSigner:
    """A signer from a private key file. Raises BadKey."""
    return CryptoSigner(_private(private.read_bytes(), private))


def load_public(data: bytes, where: str) -> SSlibKey:
    """A public key from PEM text. Raises BadKey; a private key is refused with a word of its own."""
    if b"PRIVATE KEY" in data:
        raise BadKey(f"{where} holds a private key; give the public one (.pub)")
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadKey(f"{where} holds no public key in PEM form: {error}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise BadKey(f"{where} holds a key that is not Ed25519")
    return SSlibKey.from_crypto(key)


def public_pem(private: Ed25519PrivateKey) -> bytes:
    """The public half as PEM text."""
    return private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _private(data: bytes, where: Path) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(data, None)
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        raise BadKey(f"{where} holds no unencrypted private key in PEM form: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise BadKey(f"{where} holds a key that is not Ed25519")
    return key
