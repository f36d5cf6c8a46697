"""The big list of naughty strings, by every face and back: byte for byte the same, or refused by its code."""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.cli.main import main
from gateway.client import connect
from interlock.canonical import canonical
from interlock.courier import Submitted
from interlock.identifier import new_id
from tests.suites.outside import chosen, naughty_strings
from tests.suites.producer import Call, Producer, Told

PLACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
ROLES = ("value", "key of an object", "session", "stage", "subject", "key")


@dataclass(frozen=True)
class Case:
    """One string in one role."""

    role: str
    text: str
    id: str

    @property
    def arguments(self) -> dict[str, Any]:
        if self.role == "key of an object":
            return {"value": {self.text: self.text}}
        return {"value": self.text}

    @property
    def fields(self) -> dict[str, str]:
        """Everything but the arguments."""
        # The same key with the same content is the same call, whichever face it comes by.
        stage = "keys" if self.role == "key" else self.id
        said = {"id": self.id, "tool": "echo", "session": "naughty", "stage": stage, "subject": "agent"}
        return said | ({self.role: self.text} if self.role in ("session", "stage", "subject", "key") else {})

    @property
    def is_legal(self) -> bool:
        """Whether the reference of the wire lets this string stand there."""
        if self.role in ("value", "key of an object"):
            return True
        if self.role in ("session", "stage"):
            return PLACE.fullmatch(self.text) is not None
        return 0 < len(self.text) <= 256 and self.text.isprintable()


def prove_strings(producer: Producer, rng: random.Random | None, count: int, folder: Path) -> dict[str, Any]:
    """Each face with every string in every role."""
    every = naughty_strings()
    assert len(every) == 485
    texts = chosen(list(dict.fromkeys(every)), rng, count)
    counts: Counter[str] = Counter()
    owners = _expect_through_queue(producer, texts, counts)
    _expect_through_client(producer, texts, counts, owners)
    _expect_through_batch(producer, texts, counts, owners, folder)
    for face in ("--args", "standard input"):
        _expect_through_command(producer, texts if rng is None else texts[:10], counts, face)
    return {"strings": len(texts), **counts}


def _cases(texts: Sequence[str]) -> list[Case]:
    return [Case(role, text, new_id()) for role in ROLES for text in texts]


def _expect_through_queue(producer: Producer, texts: Sequence[str], counts: Counter[str]) -> dict[str, str]:
    """Key → the invocation that it is bound to from now on."""
    cases = _cases(texts)
    calls = []
    for case in cases:
        kwargs = {**case.fields, "arguments": case.arguments}
        calls.append(Call(json.dumps(kwargs, ensure_ascii=False).encode(), case.id))
    told = producer.carry(calls)
    for case in cases:
        _judge(case, told[case.id], counts, "queue")
    return {case.text: case.id for case in cases if case.role == "key"}


def _judge(case: Case, told: Told, counts: Counter[str], face: str) -> None:
    if not case.is_legal:
        assert (told.code, told.events) == ("FIELD_INVALID", []), (case, told.code)
        counts[f"{face}, refused"] += 1
        return
    assert told.end == "ToolExecutionCompleted", (case, told.code)
    _compare(case, told)
    counts[f"{face}, the same"] += 1


def _compare(case: Case, told: Told) -> None:
    """What the ledger holds: the arguments, the receipt's output, and the role's own field, in its bytes."""
    arguments = canonical(case.arguments)
    assert b'"arguments":' + arguments + b"," in told.request_bytes, case
    assert b'"structured_output":' + arguments in told.events[-1].payload, case
    if case.role in ("session", "stage", "subject", "key"):
        assert f'"{case.role}":'.encode() + canonical(case.text) in told.request_bytes, case


def _follow(producer: Producer, after: int, cases: Sequence[Case], accepted: set[str]) -> dict[str, Told]:
    """The events of those that the ledger has, to their end."""
    told = {case.id: Told({"phase": "queued" if case.id in accepted else ""}) for case in cases}
    producer.follow(told, after)
    return told


@dataclass(frozen=True)
class Said:
    """What a face said of one case: a code, or the invocation that stands for it."""

    code: str
    invocation_id: str


def _expect_through_client(
    producer: Producer, texts: Sequence[str], counts: Counter[str], owners: dict[str, str]
) -> None:
    cases = _cases(texts)
    after = producer.end_seq()
    with connect(producer.live.directory.path) as client:
        proposals = [{**case.fields, "arguments": case.arguments} for case in cases]
        said = [
            Said("" if isinstance(outcome, Submitted) else outcome.code, outcome.invocation_id)
            for outcome in client.submit_many(proposals)
        ]
        _judge_said(producer, after, cases, said, counts, owners, "client")
        for case, one in zip(cases, said, strict=True):
            if not one.code:
                record = client.record(one.invocation_id)
                assert record is not None
                assert record.status == "COMPLETED", case


def _judge_said(
    producer: Producer,
    after: int,
    cases: Sequence[Case],
    said: Sequence[Said],
    counts: Counter[str],
    owners: dict[str, str],
    face: str,
) -> None:
    fresh = {case.id for case, one in zip(cases, said, strict=True) if one.invocation_id == case.id}
    told = _follow(producer, after, cases, {case.id for case in cases if case.is_legal} & fresh)
    for case, one in zip(cases, said, strict=True):
        assert one.code == ("" if case.is_legal else "FIELD_INVALID"), (case, one)
        counts[f"{face}, the same" if case.is_legal else f"{face}, refused"] += 1
        if case.is_legal and case.role == "key":
            assert one.invocation_id == owners[case.text], case
        elif case.is_legal:
            assert told[case.id].end == "ToolExecutionCompleted", case
            _compare(case, told[case.id])


def _expect_through_batch(
    producer: Producer, texts: Sequence[str], counts: Counter[str], owners: dict[str, str], folder: Path
) -> None:
    cases = _cases(texts)
    after = producer.end_seq()
    file = folder / "naughty.jsonl"
    lines = [json.dumps({**case.fields, "arguments": case.arguments}, ensure_ascii=False) for case in cases]
    file.write_bytes("\n".join(lines).encode())
    done = producer.live.command("submit", "--batch", str(file), "--json", "--wait", "60", seconds=90)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["line"] for one in found] == list(range(1, len(cases) + 1)), done.stderr.decode()
    said = [Said(one["code"] or "", one["invocation_id"]) for one in found]
    _judge_said(producer, after, cases, said, counts, owners, "batch file")
    assert [case for case, one in zip(cases, found, strict=True) if not one["code"]] == [
        case for case, one in zip(cases, found, strict=True) if one["output"] == case.arguments
    ]


def _expect_through_command(
    producer: Producer, texts: Sequence[str], counts: Counter[str], face: str
) -> None:
    """The command's own program, in this process: as many starts of Python would prove nothing more."""
    for text in texts:
        case = Case("value", text, new_id())
        raw = json.dumps(case.arguments, ensure_ascii=False)
        options = ["--session", "naughty", "--stage", case.id, "--json", "--wait", "20"]
        options += ["--data", str(producer.live.directory.path)]
        status, out = _obey(["submit", "echo", "--args", raw if face == "--args" else "-", *options], raw)
        assert status == 0, (case, out)
        said = json.loads(out)
        assert (said["output"], said["status"]) == (case.arguments, "COMPLETED"), case
        counts[f"{face}, the same"] += 1


def _obey(arguments: list[str], stdin: str) -> tuple[int, str]:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with _standard_input(stdin.encode()), contextlib.redirect_stdout(out):
        status = main(arguments)
    out.seek(0)
    return status, out.read()


@contextlib.contextmanager
def _standard_input(data: bytes) -> Iterator[None]:
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")
    try:
        yield
    finally:
        sys.stdin = before
