"""Seals sensitive values with AES-256-GCM under the installation's sealing key."""

from __future__ import annotations

import os
from base64 import b64decode, b64encode

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12


class AesSealer:
    """A Sealer over one 32-byte key."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def seal(self, plain: bytes, context: bytes) -> str:
        nonce = os.urandom(_NONCE_BYTES)
        return b64encode(nonce + self._cipher.encrypt(nonce, plain, context)).decode()

    def open(self, sealed: str, context: bytes) -> bytes:
        raw = b64decode(sealed, validate=True)
        try:
            return self._cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], context)
        except InvalidTag as error:
            raise ValueError("a sealed value was changed or belongs elsewhere") from error
