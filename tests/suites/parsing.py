"""JSONTestSuite: each file as the arguments of a call, as a whole queue item, and as one line of a batch."""

from __future__ import annotations

import json
import random
from base64 import b64decode
from collections import Counter
from typing import Any

from interlock.canonical import sha256_hex
from interlock.identifier import new_id
from tests.suites.outside import chosen, golden, json_files
from tests.suites.producer import Call, Producer, Told, call
from tests.support.wait import until

ACCEPTED = "accepted"


def prove_parsing(producer: Producer, rng: random.Random | None, count: int) -> dict[str, Any]:
    """`y_` parse, `n_` are refused with a reason, `i_` and the exceptions are those on record."""
    files = json_files()
    assert len(files) == 318 + 22
    files = chosen(files, rng, count)
    known = golden("parsing")
    found = _as_arguments(producer, files)
    wrong = {
        name: code for name, code in found.items() if code != known["as arguments"].get(name, _expected(name))
    }
    assert wrong == {}
    wrapped = _as_value(producer, files)
    # Within an object what was no object is one, and nothing else about it changes.
    as_value = {
        name: ACCEPTED if code == "ARGUMENTS_NOT_OBJECT" else known["as a value"].get(name, code)
        for name, code in found.items()
    }
    assert {name: code for name, code in wrapped.items() if code != as_value[name]} == {}
    _as_items(producer, files)
    return {"arguments": dict(Counter(found.values())), "values": dict(Counter(wrapped.values()))}


def _expected(name: str) -> str:
    """What is not on record: all that parses is no object."""
    return "ARGUMENTS_NOT_OBJECT" if name.startswith("y_") else "JSON_SYNTAX"


def _as_arguments(producer: Producer, files: list[tuple[str, bytes]]) -> dict[str, str]:
    """File → code, its bytes being the whole arguments of a call of `echo`."""
    calls = {name: call("echo", raw) for name, raw in files}
    told = producer.carry(list(calls.values()))
    return {name: _code(told[one.id]) for name, one in calls.items()}


def _as_value(producer: Producer, files: list[tuple[str, bytes]]) -> dict[str, str]:
    """File → code, its bytes being the argument `value`."""
    calls = {name: call("echo", b'{"value":' + raw + b"}") for name, raw in files}
    told = producer.carry(list(calls.values()))
    return {name: _code(told[one.id]) for name, one in calls.items()}


def _code(told: Told) -> str:
    if told.end == "ToolExecutionCompleted":
        return ACCEPTED
    # A schema that refuses has read what it refuses.
    return told.code if told.code != "SCHEMA_INVALID" else ACCEPTED


def _as_items(producer: Producer, files: list[tuple[str, bytes]]) -> None:
    """As a whole queue item each is a dead letter with its beginning, and the governor goes on."""
    after = producer.end_seq()
    producer.push([raw for _, raw in files if raw])
    wanted = Counter(sha256_hex(raw) for _, raw in files if raw)
    letters: list[Any] = []

    def all_there() -> bool:
        letters[:] = [event.body() for event in producer.events(after) if event.type == "DeadLettered"]
        return len(letters) >= wanted.total()

    until(all_there, 30, "every item is a dead letter")
    assert Counter(letter["sha256"] for letter in letters) == wanted
    assert {letter["reason"]["code"] for letter in letters} == {"NOT_AN_ENVELOPE"}
    beginnings = {sha256_hex(raw): raw[:4_096] for _, raw in files}
    assert all(b64decode(letter["first_base64"]) == beginnings[letter["sha256"]] for letter in letters)
    [last] = producer.carry([Call(b'{"tool": "echo", "arguments": {"value": 1}}')]).values()
    assert last.end == "ToolExecutionCompleted"


def batch_lines(files: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """The files that can stand in a line of a batch: as they are, or as the string that holds them."""
    lines = []
    for name, raw in files:
        head = json.dumps({"id": new_id(), "tool": "echo", "session": "suites"})[:-1].encode()
        if b"\n" not in raw:
            lines.append((name, head + b', "arguments": ' + raw + b"}"))
        elif _is_text(raw):
            lines.append((name, head + b', "arguments_json": ' + json.dumps(raw.decode()).encode() + b"}"))
    return lines


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
