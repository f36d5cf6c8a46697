"""A client's signed wish to end one of its invocations, as it stands on the queue of decisions. Pure.

Judges neither rights nor whether there is such an invocation; whose key signed, the caller looks up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from interlock.canonical import JsonObject, digest_of
from interlock.seal import KeyRing, Purpose, Signer


@dataclass(frozen=True, slots=True)
class Cancellation:
    """Which invocation is to end, and who claims to have signed that; worth nothing until it is verified."""

    invocation_id: str
    client: str = ""
    """"" where it says nothing of itself: then its queue shows whom it comes from."""
    kid: str = ""
    signature: str = ""
    """Hex Ed25519 over `signed_bytes`."""

    @property
    def is_signed(self) -> bool:
        return self.client != ""

    def signed_bytes(self) -> bytes:
        """What the client signs: purpose, itself, its key, and the invocation."""
        return _signed_bytes(self.client, self.kid, self.invocation_id)

    def is_signed_by(self, keys: KeyRing) -> bool:
        """Whether one of these keys signed it."""
        try:
            signature = bytes.fromhex(self.signature)
        except ValueError:
            return False
        return keys.verify(self.kid, self.signed_bytes(), signature)


def read_cancellation(arguments: Mapping[str, Any]) -> Cancellation | None:
    """The cancellation in a request's arguments; None where its `auth` is no client, kid and signature."""
    identifier = str(arguments.get("id", ""))
    auth = arguments.get("auth")
    if auth is None:
        return Cancellation(identifier)
    if not isinstance(auth, Mapping):
        return None
    said = [auth.get(name) for name in ("client", "kid", "signature")]
    if not all(isinstance(item, str) and item for item in said):
        return None
    return Cancellation(identifier, *(str(item) for item in said))


def sign_cancellation(invocation_id: str, client: str, signer: Signer) -> JsonObject:
    """The arguments of a cancellation with the client's signature."""
    signature = signer.sign(_signed_bytes(client, signer.kid, invocation_id)).hex()
    return {"id": invocation_id, "auth": {"client": client, "kid": signer.kid, "signature": signature}}


def _signed_bytes(client: str, kid: str, invocation_id: str) -> bytes:
    return digest_of([Purpose.CANCELLATION.value, client, kid, invocation_id]).encode()
