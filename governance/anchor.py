"""Signed heads of the chain, kept outside the ledger: what was true of it once cannot be untold.

Each place is a file of JSON lines that is only ever appended to. Tells whether a ledger went back; only
`verify` tells whether it is whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from governance.ledger import LedgerView
from interlock.canonical import digest_of, parse_json
from interlock.clock import Clock
from interlock.durable import sync_folder
from interlock.errors import NotJsonError
from interlock.seal import Purpose, Seal, SealVerifier, Signer, seal_batch
from interlock.word import Word

LINE_BYTES_MAX = 4_096


class ChainHead(Word):
    """Where the chain stood."""

    incarnation: str
    seq: int
    hash: str
    at_us: int


class Anchor(Word):
    """A head of the chain under a seal."""

    head: ChainHead
    seal: Seal

    @property
    def head_digest(self) -> str:
        """What the seal covers."""
        return head_digest(self.head)


class AnchorLine(Word):
    """One line of a file: the anchor in it, or None where it is none."""

    number: int
    anchor: Anchor | None


def head_digest(head: ChainHead) -> str:
    """The digest of a head that its seal covers."""
    return digest_of(["interlock.anchor.v1", head.incarnation, head.seq, head.hash, head.at_us])


class AnchorWriter:
    """Appends signed heads to every place it was given, durably."""

    def __init__(self, paths: Sequence[Path], signer: Signer, incarnation: str, clock: Clock) -> None:
        self._paths = tuple(paths)
        self._signer = signer
        self._incarnation = incarnation
        self._clock = clock

    def anchor(self, seq: int, hash_: str) -> None:
        """Sign and keep this head. Raises OSError where a place cannot be written; the others are."""
        head = ChainHead(incarnation=self._incarnation, seq=seq, hash=hash_, at_us=self._clock.now_us())
        [seal] = seal_batch(self._signer, Purpose.ANCHOR, [head_digest(head)])
        line = Anchor(head=head, seal=seal).to_bytes() + b"\n"
        failed: list[OSError] = []
        for path in self._paths:
            try:
                _append(path, line)
            except OSError as error:
                failed.append(error)
        if failed:
            raise failed[0]


def read_anchors(path: Path) -> Iterator[AnchorLine]:
    """The lines of one place, in order; a line that a crash cut short at the end is none. Raises OSError."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):
                yield AnchorLine(number=number, anchor=_parsed(line))


def gone_since(
    view: LedgerView, incarnation: str, paths: Sequence[Path], verifier: SealVerifier
) -> str | None:
    """What the last trusted anchor of each place knows and the ledger does not; None where it is all there.

    A ledger that went back (a restored copy, a lost disk) must stay read only until somebody decides.
    A place that does not exist yet says nothing.
    """
    for path in paths:
        anchor = _last_trusted(path, verifier)
        if anchor is None:
            continue
        head = anchor.head
        if head.incarnation != incarnation:
            return f"{path} is of ledger {head.incarnation}, this one is {incarnation}"
        found = view.range(head.seq - 1, 1)
        if not found or found[0].seq != head.seq:
            return f"event {head.seq} was anchored in {path}, the ledger ends at {view.last_seq()}"
        if found[0].hash != head.hash:
            return f"event {head.seq} is another than the one anchored in {path}"
    return None


def _last_trusted(path: Path, verifier: SealVerifier) -> Anchor | None:
    if not path.exists():
        return None
    anchors = (line.anchor for line in read_anchors(path))
    trusted = (one for one in anchors if one is not None and verifier.verify(one.head_digest, one.seal))
    return max(trusted, key=lambda anchor: anchor.head.seq, default=None)


def _parsed(line: bytes) -> Anchor | None:
    try:
        value = parse_json(line.strip(), size_bytes_max=LINE_BYTES_MAX)
        return Anchor.model_validate(value)
    except (NotJsonError, ValidationError):
        return None


def _append(path: Path, line: bytes) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _drop_cut_line(descriptor)
        is_new = os.fstat(descriptor).st_size == 0
        os.write(descriptor, line)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if is_new:
        sync_folder(path.parent)


def _drop_cut_line(descriptor: int) -> None:
    """Remove what a crash left after the last line end; it was never answered for."""
    size = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, LINE_BYTES_MAX, max(0, size - LINE_BYTES_MAX))
    if tail and not tail.endswith(b"\n"):
        os.ftruncate(descriptor, size - len(tail) + tail.rfind(b"\n") + 1)
