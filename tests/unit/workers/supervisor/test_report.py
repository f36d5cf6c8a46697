"""Calls and outcomes survive the line and the file exactly."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import pytest

from workers.supervisor.port import (
    AffectedEntity,
    Call,
    Completed,
    Failed,
    InMemorySupervisor,
    NotStarted,
    Outcome,
    SandboxReport,
)
from workers.supervisor.report import (
    decode_call,
    decode_outcome,
    encode_call,
    encode_outcome,
    read_orphan,
    to_bytes,
    write_orphan,
)

CALL = Call("i", "echo", {"a": [1, "ä"]}, "s", Path("/w"), frozenset({"FILE_READ"}), 1, 2, 3, "nonce")
FILE = AffectedEntity("file", "a", None, "sha256:00")
OUTCOMES: list[Outcome] = [
    Completed(3, {"a": None}, (FILE,), {"m": 1}, 5, SandboxReport("N", ("a", "b")), ("stdout",), {"r": 2}),
    Failed(
        "CODE", "why", True, (FILE,), {"m": 1}, 5, SandboxReport("N", ("a",)), ("x",), {"r": 2}, b"\xff\0"
    ),
    NotStarted("CODE", "why"),
]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_an_outcome_comes_back_as_it_was(outcome: Outcome, tmp_path: Path) -> None:
    assert decode_outcome(encode_outcome(outcome)) == outcome
    names, read = read_orphan(write_orphan(tmp_path, CALL, outcome))
    assert read == outcome
    assert names == {"invocation_id": "i", "session_id": "s", "tool": "echo", "claim": "nonce"}


def test_an_orphan_is_private_and_nothing_partial_stays(tmp_path: Path) -> None:
    file = write_orphan(tmp_path, CALL, OUTCOMES[0])
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_a_call_with_frozen_arguments_comes_back_plain() -> None:
    frozen = MappingProxyType({"a": (1, MappingProxyType({"b": ()}))})
    fields = encode_call(Call("i", "t", frozen, "s", None, frozenset(), 1, 2, 3))
    to_bytes(fields)
    assert decode_call(fields).arguments == {"a": [1, {"b": []}]}
    assert decode_call(encode_call(CALL)) == CALL


def test_what_is_no_json_is_an_error_and_never_sent() -> None:
    for value in (float("nan"), "\ud800"):
        with pytest.raises(ValueError):
            to_bytes({"a": value})


def test_the_fake_asks_the_same_questions() -> None:
    fake = InMemorySupervisor(lambda call: Completed(0, {"tool": call.tool}))
    assert fake.execute(CALL, lambda: None, lambda: True) == Completed(0, {"tool": "echo"})
    assert isinstance(fake.execute(CALL, lambda: "stop"), NotStarted)
    assert isinstance(fake.execute(CALL, lambda: None, lambda: False), NotStarted)
    assert fake.calls == [CALL]
