"""Opens the parts that the roles of one installation share: ledger, keys, clients of the broker, settings.

Composition only: each process opens its own, after it was forked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.embedded.directory import DataDirectory
from gateway.store import open_ledger, open_projection, sequencer_of
from governance.adapters.aes_sealer import AesSealer
from governance.keys import KeyPurpose, make_keys, read_key, read_public
from interlock.adapters.ed25519 import Ed25519Signer, kid_of
from interlock.adapters.redis_client import connect, waiting_name
from interlock.adapters.redis_stream import RedisEventStream
from interlock.adapters.redis_waker import RedisWaker
from interlock.clock import SystemClock, clock_from
from interlock.fault import FaultPoints, faults_from
from interlock.identifier import new_id
from interlock.settings import Settings, settings_from
from scheduler.relay import Sequencer

if TYPE_CHECKING:
    from gateway.store import OpenLedger, OpenProjection


@dataclass(frozen=True, slots=True)
class Parts:
    """One process's way to everything of one data directory."""

    directory: DataDirectory
    settings: Settings
    clock: SystemClock
    faults: FaultPoints

    @classmethod
    def of(cls, directory: DataDirectory, environment: Mapping[str, str]) -> Parts:
        """The parts an environment asks for; raises ValueError naming a variable that cannot be read."""
        return cls(directory, settings_from(environment), clock_from(environment), faults_from(environment))

    def ledger(self, *, create: bool = False) -> OpenLedger:
        """The ledger, open for this process, wherever it lies."""
        return open_ledger(self.directory, create=create, faults=self.faults)

    def projection(self) -> OpenProjection:
        """The views, open to be projected into; they lie beside the ledger."""
        return open_projection(self.directory)

    def sequencer(self, ledger: OpenLedger) -> Sequencer:
        """What gives the ledger's events their place, in a life of its own of this process."""
        return sequencer_of(ledger, new_id())

    def make_keys(self) -> None:
        """Make the installation's keys, where it has none."""
        make_keys(self.directory.keys, public_key_of)

    def public_keys(self) -> Mapping[KeyPurpose, str]:
        """The installation's public keys."""
        return read_public(self.directory.keys)

    def signer(self, purpose: KeyPurpose) -> Ed25519Signer:
        """One private key in use."""
        return Ed25519Signer.from_bytes(read_key(self.directory.keys, purpose))

    def sealer(self) -> AesSealer:
        """The key that sensitive parameters are sealed under."""
        return AesSealer(read_key(self.directory.keys, KeyPurpose.SEALING))

    def stream(self) -> RedisEventStream:
        """The stream of events."""
        url = self.directory.broker_client_url
        return RedisEventStream(connect(url), connect(url, blocking=True, name=waiting_name()))

    def waker(self) -> RedisWaker:
        """Wake-ups between roles."""
        url = self.directory.broker_client_url
        return RedisWaker(connect(url), connect(url, blocking=True, name=waiting_name()))


def public_key_of(private: bytes) -> str:
    """Hex of the public key that belongs to private bytes."""
    return Ed25519Signer.from_bytes(private).public_hex


def kids_of(public: Mapping[KeyPurpose, str]) -> dict[KeyPurpose, str]:
    """The names of public keys."""
    return {purpose: kid_of(key) for purpose, key in public.items()}
