"""The suites through the command line: one batch each, and single processes of their worst inputs."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interlock.identifier import new_id
from tests.suites.outside import (
    canonical_documents,
    canonical_numbers,
    chosen,
    disagreements,
    golden,
    json_files,
    leaderboard,
    naughty_strings,
    schema_groups,
)
from tests.suites.parsing import batch_lines
from tests.suites.producer import Producer, contract, register
from tests.suites.schema import tool_of

SINGLES = 25
LINE = re.compile(r"[A-Z][A-Z0-9_]+: \S.*\Z")


@dataclass(frozen=True)
class Single:
    """One process: its tool, the bytes of its arguments, and whether they can stand among the options."""

    tool: str
    raw: bytes

    @property
    def fits_option(self) -> bool:
        return (
            len(self.raw) < 100_000
            and b"\0" not in self.raw
            and self.raw != b"-"
            and not self.raw.startswith(b"-")
        )


def prove_commands(producer: Producer, rng: random.Random | None, count: int, folder: Path) -> dict[str, Any]:
    """Every suite as one batch (in full form), and 25 single processes of each suite's worst, or `count`."""
    makers: dict[str, Callable[[], tuple[list[bytes], list[Single]]]] = {
        "bfcl": lambda: _leaderboard(producer, rng),
        "json-schema-test-suite": lambda: _schemas(producer, rng),
        "jsontestsuite": _parsing,
        "jcs-rfc8785": _canonical,
        "naughty-strings": _naughty,
    }
    figures: dict[str, Any] = {}
    for name, make in makers.items():
        lines, singles = make()
        counted = _batch(producer, lines if rng is None else lines[:200], folder)
        codes = _singles(producer, singles[: SINGLES if rng is None else count])
        figures[name] = {"lines": dict(counted), "singles": dict(codes)}
    if rng is None:
        assert figures["bfcl"]["lines"] == {"COMPLETED": 3_125, "SCHEMA_INVALID": 27}, figures["bfcl"]
    return figures


def _batch(producer: Producer, lines: Sequence[bytes], folder: Path) -> Counter[str]:
    """One `submit --batch`: an answer a line in their order, each completed or refused by a code."""
    file = folder / "suite.jsonl"
    file.write_bytes(b"\n".join(lines))
    done = producer.live.command("submit", "--batch", str(file), "--json", "--wait", "100", seconds=180)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["line"] for one in said] == list(range(1, len(lines) + 1)), done.stderr.decode()
    assert b"Traceback" not in done.stderr
    counted = Counter(one["code"] or one["status"] for one in said)
    assert all(code == "COMPLETED" or code.isupper() for code in counted), counted
    assert not {"REQUESTED", "STARTED", "FAILED", "NOT_ACCEPTED", "ACCEPTANCE_UNKNOWN"} & set(counted), (
        counted
    )
    assert done.returncode == (4 if set(counted) - {"COMPLETED"} else 0), (done.returncode, counted)
    return counted


def _singles(producer: Producer, singles: Sequence[Single]) -> Counter[str]:
    """Two processes at a time; every second one gives its arguments among the options."""
    with ThreadPoolExecutor(2) as threads:
        done = list(threads.map(lambda pair: _single(producer, *pair), enumerate(singles)))
    return Counter(done)


def _single(producer: Producer, number: int, single: Single) -> str:
    options = ["--stage", new_id(), "--session", "suites", "--wait", "30"]
    if number % 2 and single.fits_option:
        # As the shell hands it over: bytes that are no text come as surrogates.
        text = single.raw.decode("utf-8", "surrogateescape")
        done = producer.live.command("submit", single.tool, "--args", text, *options)
    else:
        done = producer.live.command("submit", single.tool, "--args", "-", *options, stdin=single.raw)
    return _code(done, single)


def _code(done: subprocess.CompletedProcess[bytes], single: Single) -> str:
    """An exit code that says what happened, and one line with a code unless it completed."""
    said = done.stderr.decode()
    assert done.returncode in (0, 2, 4), (done.returncode, said, single.raw[:200])
    if done.returncode == 0:
        assert said == "", said
        return "COMPLETED"
    assert LINE.fullmatch(said.rstrip("\n")), said
    return said.partition(":")[0]


def _line(tool: str, arguments: bytes) -> bytes:
    identifier = new_id()
    said = {"id": identifier, "tool": tool, "session": "suites", "stage": identifier}
    return json.dumps(said)[:-1].encode() + b', "arguments": ' + arguments + b"}"


def _raw(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _leaderboard(producer: Producer, rng: random.Random | None) -> tuple[list[bytes], list[Single]]:
    rows = chosen(leaderboard(), rng, 100)
    catalogues = {
        f"cli.{row['id']}": [contract(tool["name"], tool["parameters"]) for tool in row["tools"]]
        for row in rows
    }
    assert register(producer.live, catalogues) == {}
    calls = [(row["id"], call["tool"], _raw(call["arguments"])) for row in rows for call in row["calls"]]
    lines = [_line(f"cli.{row}/{tool}", raw) for row, tool, raw in calls]
    named = disagreements() | {tuple(pair) for pair in golden("bfcl")["refused_when_closed"]}
    refused = [one for one in calls if one[:2] in named][:12]
    longest = sorted(calls, key=lambda one: -len(one[2]))[:20]
    return lines, [Single(f"cli.{row}/{tool}", raw) for row, tool, raw in [*refused, *longest]]


def _schemas(producer: Producer, rng: random.Random | None) -> tuple[list[bytes], list[Single]]:
    groups = chosen(schema_groups(), rng, 40)
    catalogues = {f"cli.{group.catalogue}": [tool_of(group)] for group in groups}
    unknown = set(register(producer.live, catalogues))
    pairs = [
        (f"cli.{group.catalogue}/t", _raw({"v": test.data}))
        for group in groups
        if f"cli.{group.catalogue}" not in unknown
        for test in group.tests
        if _is_text(test.data)
    ]
    worst = sorted(pairs, key=lambda pair: (-pair[1].count(b"[") - pair[1].count(b"{"), -len(pair[1])))
    return [_line(tool, raw) for tool, raw in pairs], [Single(tool, raw) for tool, raw in worst]


def _is_text(value: Any) -> bool:
    try:
        _raw(value)
    except UnicodeEncodeError:
        return False
    return True


_WORST = (
    "n_structure_100000",
    "n_structure_open_array_object",
    "i_structure_500",
    "n_multidigit",
    "i_string",
)


def _parsing() -> tuple[list[bytes], list[Single]]:
    files = json_files()
    worst = [raw for name, raw in files if name.startswith(_WORST)]
    rest = [raw for name, raw in files if name.startswith(("n_string", "y_object", "n_structure"))]
    return [line for _, line in batch_lines(files)], [Single("echo", raw) for raw in [*worst, *rest]]


def _canonical() -> tuple[list[bytes], list[Single]]:
    numbers = canonical_numbers()
    values = [given for _, given, _ in canonical_documents()]
    values += [
        f"[{','.join(f'{number:.17e}' for number, _ in numbers[at : at + 100])}]".encode()
        for at in range(0, 10_000, 100)
    ]
    arguments = [b'{"value":' + b" ".join(value.split(b"\n")) + b"}" for value in values]
    return [_line("echo", raw) for raw in arguments], [Single("echo", raw) for raw in arguments]


def _naughty() -> tuple[list[bytes], list[Single]]:
    texts = naughty_strings()
    strange = sorted(texts, key=lambda text: (text.isprintable(), text.isascii(), -len(text)))
    return (
        [_line("echo", _raw({"value": text})) for text in texts],
        [Single("echo", _raw({"value": text})) for text in strange],
    )
