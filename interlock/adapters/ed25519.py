"""Ed25519 by `cryptography`: the signer and the key ring of `interlock.seal`.

Private bytes go in and come out only where they are asked for by name; they are never shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

KID_DIGITS = 16


def kid_of(public_hex: str) -> str:
    """The name of a public key: the first 16 hex digits of its SHA-256. Raises ValueError for no hex."""
    return hashlib.sha256(bytes.fromhex(public_hex)).hexdigest()[:KID_DIGITS]


class Ed25519Signer:
    """A private key in use."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self._public_hex = key.public_key().public_bytes_raw().hex()
        self._kid = kid_of(self._public_hex)

    @classmethod
    def generate(cls) -> Ed25519Signer:
        """A new key."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_bytes(cls, private: bytes) -> Ed25519Signer:
        """The key of these 32 private bytes; raises ValueError for any other number."""
        return cls(Ed25519PrivateKey.from_private_bytes(private))

    @property
    def kid(self) -> str:
        return self._kid

    @property
    def public_hex(self) -> str:
        """The 32 public bytes in lower-case hexadecimal."""
        return self._public_hex

    def private_bytes(self) -> bytes:
        """The 32 private bytes, for the key's file and nothing else."""
        return self._key.private_bytes_raw()

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data)

    def __repr__(self) -> str:
        return f"Ed25519Signer({self._kid})"


class Ed25519KeyRing:
    """Public keys by their names; what it does not hold signs nothing."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        """`keys` is kid → public hex; raises ValueError where a name is not that of its key."""
        for kid, public_hex in keys.items():
            if kid_of(public_hex) != kid:
                raise ValueError(f"{kid} is not the name of this key")
        self._keys = {
            kid: Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_hex))
            for kid, public_hex in keys.items()
        }

    def verify(self, kid: str, data: bytes, signature: bytes) -> bool:
        key = self._keys.get(kid)
        if key is None:
            return False
        try:
            key.verify(signature, data)
        except InvalidSignature:
            return False
        return True


def is_signed_by(public_hex: str, data: bytes, signature: bytes) -> bool:
    """Whether the holder of this raw public key signed exactly this; False for what is no key at all."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_hex)).verify(signature, data)
    except (ValueError, InvalidSignature):
        return False
    return True
