"""Checks the whole log of a data directory, with its own anchors and any kept elsewhere. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gateway.embedded.directory import DataDirectory
from gateway.reading import open_reading
from governance.keys import read_public
from governance.verify import Report, verify
from interlock.adapters.ed25519 import Ed25519KeyRing, kid_of


def prove_log(directory: DataDirectory, elsewhere: Sequence[Path] = ()) -> Report:
    """What verification says of the directory's ledger. Raises what opening it raises."""
    keys = {purpose: [(kid_of(key), key)] for purpose, key in read_public(directory.keys).items()}
    with open_reading(directory) as reading:
        return verify(reading.ledger.records(), elsewhere, keys, Ed25519KeyRing, own=directory.anchors)
