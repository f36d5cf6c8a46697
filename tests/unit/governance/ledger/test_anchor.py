"""Anchors are appended durably, survive a cut line, and say what they are worth only under a known key."""

from __future__ import annotations

from pathlib import Path

import pytest

from governance.anchor import AnchorWriter, gone_since, read_anchors
from governance.memory_ledger import InMemoryLedger
from governance.verification.fault import FaultCode
from interlock.adapters.ed25519 import Ed25519KeyRing, Ed25519Signer
from interlock.clock import ManualClock
from interlock.seal import Purpose, SealVerifier
from tests.support.installation import Installation, Named, named


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "anchors.jsonl"


@pytest.fixture
def signer() -> Ed25519Signer:
    return Ed25519Signer.generate()


def writer(signer: Ed25519Signer, *paths: Path) -> AnchorWriter:
    return AnchorWriter(paths, signer, "inc-1", ManualClock(7))


def seqs(path: Path) -> list[int | None]:
    return [line.anchor.head.seq if line.anchor else None for line in read_anchors(path)]


def test_an_anchor_is_read_back_under_its_seal(signer: Ed25519Signer, path: Path) -> None:
    writer(signer, path).anchor(3, "a" * 64)
    [line] = read_anchors(path)
    assert line.anchor is not None
    head = line.anchor.head
    assert (head.incarnation, head.seq, head.hash, head.at_us) == ("inc-1", 3, "a" * 64, 7)
    ring = Ed25519KeyRing({signer.kid: signer.public_hex})
    assert SealVerifier(ring, Purpose.ANCHOR).verify(line.anchor.head_digest, line.anchor.seal)
    assert not SealVerifier(ring, Purpose.PERMIT).verify(line.anchor.head_digest, line.anchor.seal)


def test_every_place_gets_every_anchor(signer: Ed25519Signer, path: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.jsonl"
    for seq in (1, 2):
        writer(signer, path, elsewhere).anchor(seq, "a" * 64)
    assert path.read_bytes() == elsewhere.read_bytes()
    assert seqs(path) == [1, 2]


def test_a_place_that_fails_keeps_no_other_from_its_anchor(
    signer: Ed25519Signer, path: Path, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError):
        writer(signer, tmp_path / "absent" / "a.jsonl", path).anchor(1, "a" * 64)
    assert seqs(path) == [1]


def test_a_line_that_a_crash_cut_short_is_none_and_is_written_over(signer: Ed25519Signer, path: Path) -> None:
    writer(signer, path).anchor(1, "a" * 64)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:100])
    assert seqs(path) == [1]
    writer(signer, path).anchor(2, "b" * 64)
    assert seqs(path) == [1, 2]


def test_a_first_line_that_was_cut_short_is_written_over(signer: Ed25519Signer, path: Path) -> None:
    path.write_bytes(b'{"head":')
    writer(signer, path).anchor(2, "b" * 64)
    assert seqs(path) == [2]


@pytest.mark.parametrize("line", [b"\n", b"{}\n", b"[1]\n", b"\xff\n", b'{"head":{},"seal":{}}\n'])
def test_a_line_that_is_no_anchor_is_one_without(path: Path, line: bytes) -> None:
    path.write_bytes(line)
    assert seqs(path) == [None]


# --- against a ledger --------------------------------------------------------------------------------


@pytest.fixture
def installation() -> Installation:
    clock = ManualClock()
    made = Installation(InMemoryLedger(clock), clock)
    made.start()
    made.run("i-1")
    return made


def found(installation: Installation, *paths: Path) -> Named:
    assert isinstance(installation.ledger, InMemoryLedger)
    return named(installation.verify(installation.ledger.records(), *paths))


def test_an_anchor_of_another_ledger_is_named(installation: Installation, path: Path) -> None:
    AnchorWriter([path], installation.anchor, "another", installation.clock).anchor(2, "a" * 64)
    assert found(installation, path) == {(2, FaultCode.ANCHOR_FOREIGN)}


def test_an_anchor_by_an_unknown_key_is_named_and_proves_nothing(
    installation: Installation, path: Path
) -> None:
    forger = Ed25519Signer.generate()
    AnchorWriter([path], forger, installation.ledger.info.incarnation, installation.clock).anchor(2, "a" * 64)
    assert found(installation, path) == {(2, FaultCode.ANCHOR_SEAL)}


def test_an_edited_anchor_is_named(installation: Installation, path: Path) -> None:
    installation.anchor_head(path)
    path.write_bytes(path.read_bytes().replace(b'"seq":8', b'"seq":7'))
    assert found(installation, path) == {(7, FaultCode.ANCHOR_SEAL)}


def test_what_cannot_be_read_is_named(installation: Installation, path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"no anchor\n")
    assert found(installation, path) == {(None, FaultCode.ANCHOR_UNREADABLE)}
    assert found(installation, tmp_path / "absent") == {(None, FaultCode.ANCHOR_UNREADABLE)}


@pytest.mark.parametrize(("gaps", "step_us"), [(70, 1_000_000), (7, 86_400_000_000)])
def test_own_anchors_that_are_gone_are_missed_once_there_must_be_some(
    installation: Installation, path: Path, gaps: int, step_us: int
) -> None:
    assert isinstance(installation.ledger, InMemoryLedger)
    assert isinstance(installation.clock, ManualClock)
    for number in range(gaps):
        report = installation.verify(installation.ledger.records(), own=path)
        assert report.ok == (number * min(step_us, 10_000_000) <= 60_000_000), report.faults
        installation.clock.advance(step_us / 1_000_000)
        installation.request(f"later-{number}", stage=f"g-{number}")
    report = installation.verify(installation.ledger.records(), own=path)
    assert named(report) == {(None, FaultCode.ANCHOR_MISSING)}
    path.touch()
    report = installation.verify(installation.ledger.records(), own=path)
    assert named(report) == {(None, FaultCode.ANCHOR_MISSING)}
    installation.anchor_head(path)
    assert installation.verify(installation.ledger.records(), own=path).ok


def test_the_report_says_how_far_anchors_vouch(installation: Installation, path: Path) -> None:
    installation.anchor_head(path)
    installation.run("i-2")
    assert isinstance(installation.ledger, InMemoryLedger)
    report = installation.verify(installation.ledger.records(), path)
    assert (report.ok, report.anchored, report.seq) == (True, 8, 12)


# --- a ledger that went back -------------------------------------------------------------------------


def went_back(installation: Installation, *paths: Path, signer: Ed25519Signer | None = None) -> str | None:
    key = signer or installation.anchor
    verifier = SealVerifier(Ed25519KeyRing({key.kid: key.public_hex}), Purpose.ANCHOR)
    with installation.ledger.read() as view:
        return gone_since(view, installation.ledger.info.incarnation, paths, verifier)


def test_a_ledger_that_holds_what_was_anchored_did_not_go_back(
    installation: Installation, path: Path, tmp_path: Path
) -> None:
    installation.anchor_head(path)
    installation.run("i-2")
    assert went_back(installation, path, tmp_path / "not yet made") is None


@pytest.mark.parametrize(
    ("incarnation", "seq", "why"),
    [
        (None, 9, "event 9 was anchored"),
        (None, 8, "event 8 is another"),
        ("another", 8, "is of ledger another"),
    ],
)
def test_a_ledger_without_what_was_anchored_went_back(
    installation: Installation, path: Path, incarnation: str | None, seq: int, why: str
) -> None:
    anchored = incarnation or installation.ledger.info.incarnation
    AnchorWriter([path], installation.anchor, anchored, installation.clock).anchor(seq, "a" * 64)
    said = went_back(installation, path)
    assert said is not None
    assert why in said
    assert went_back(installation, path, signer=Ed25519Signer.generate()) is None
