"""The public keys of an installation: as the ledger's events name them, compared with those known outside.

Holds public keys only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from pydantic import ValidationError

from governance.keys import KeyPurpose
from governance.verification.fault import FaultCode, Faults
from interlock.canonical import sha256_hex
from interlock.errors import NotJsonError
from interlock.event import InstallationStarted, KeyAdded, StoredEvent, read_payload
from interlock.seal import KeyRing, Purpose, SealVerifier

RingOf = Callable[[Mapping[str, str]], KeyRing]
"""Makes a key ring of kid → public hex; raises ValueError where a name is not that of its key."""


def ring_name(public_hex: str) -> str:
    """The name that a ring knows a key by, whatever its owner calls it. Raises ValueError for no hex."""
    return sha256_hex(bytes.fromhex(public_hex))[:16]


class KeyBook:
    """Collects the keys of the events it is fed with."""

    def __init__(
        self,
        known: Mapping[KeyPurpose, Collection[tuple[str, str]]],
        ring_of: RingOf,
        incarnation: str,
        faults: Faults,
    ) -> None:
        """`known` holds (kid, public hex) by purpose; of an absent purpose the ledger is believed."""
        self._known = known
        self._ring_of = ring_of
        self._incarnation = incarnation
        self._faults = faults
        self._keys: dict[KeyPurpose, dict[str, str]] = {
            purpose: dict(known.get(purpose, ())) for purpose in KeyPurpose
        }

    def feed(self, event: StoredEvent) -> None:
        """Take the keys that an event brings, if it brings any."""
        if event.type not in (InstallationStarted.__name__, KeyAdded.__name__):
            return
        try:
            payload = read_payload(event)
        except (NotJsonError, ValidationError, KeyError):
            self._faults.add(event.seq, FaultCode.KEY_UNREADABLE, f"{event.type} cannot be read")
            return
        if isinstance(payload, InstallationStarted):
            self._start(event.seq, payload)
        elif isinstance(payload, KeyAdded) and payload.purpose in set(KeyPurpose):
            self._add(event.seq, KeyPurpose(payload.purpose), payload.kid, payload.public_key)

    def verifier(self, key: KeyPurpose, purpose: Purpose) -> SealVerifier:
        """Checks seals of this purpose by the keys collected so far."""
        return SealVerifier(self._ring_of(self._keys[key]), purpose)

    def _start(self, seq: int, started: InstallationStarted) -> None:
        if started.incarnation != self._incarnation:
            said = f"it says ledger {started.incarnation}, the ledger says {self._incarnation}"
            self._faults.add(seq, FaultCode.INCARNATION, said)
        self._add(seq, KeyPurpose.GOVERNANCE, started.governance_kid, started.governance_key)
        self._add(seq, KeyPurpose.POOL, started.pool_kid, started.pool_key)
        self._add(seq, KeyPurpose.ANCHOR, started.anchor_kid, started.anchor_key)

    def _add(self, seq: int, purpose: KeyPurpose, kid: str, public_hex: str) -> None:
        known = self._known.get(purpose)
        if known is not None and (kid, public_hex) not in known:
            # Whoever can append can name a key of his own; what is known outside says whether to believe it.
            self._faults.add(seq, FaultCode.KEY_MISMATCH, f"the {purpose.value} key {kid} is not a known one")
            return
        try:
            self._ring_of({kid: public_hex})
        except ValueError:
            self._faults.add(seq, FaultCode.KEY_UNREADABLE, f"{kid} is not the name of this key")
            return
        self._keys[purpose][kid] = public_hex
