"""The outside test data, read as it lies beside the project. Absent, it skips a test; nothing is mended."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.support.source import ROOT

SUITES = ROOT.parent / "shared" / "suites"
HERE = Path(__file__).parent
DRAFT = "json-schema-test-suite/tests/draft2020-12"

Item = TypeVar("Item")


def suite(name: str) -> Path:
    """The folder of one suite; skips where it is not there."""
    folder = SUITES / name
    if not folder.is_dir():
        pytest.skip(f"the outside test data is not at {folder}")
    return folder


def golden(name: str) -> Any:
    """What is on record of a suite: documented exceptions by name, and choices."""
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))


def chosen(items: Sequence[Item], rng: random.Random | None, count: int) -> list[Item]:
    """All of them in full form; else a sample of at most `count`, in their order."""
    if rng is None or count >= len(items):
        return list(items)
    places = sorted(rng.sample(range(len(items)), count))
    return [items[place] for place in places]


def leaderboard() -> list[Any]:
    """Rows of the function calling leaderboard: id, tools, calls."""
    with (suite("bfcl") / "normalized.jsonl").open(encoding="utf-8") as lines:
        return list(map(json.loads, lines))


def disagreements() -> set[tuple[str, str]]:
    """(row, tool) of the calls that the leaderboard's own schemas refuse."""
    known = json.loads((suite("bfcl") / "oracle_disagreements.json").read_text(encoding="utf-8"))
    return {(row, tool) for row, tool, _ in known}


@dataclass(frozen=True)
class SchemaTest:
    """One test of the JSON Schema suite."""

    file: str
    group: str
    name: str
    data: Any
    valid: bool

    @property
    def title(self) -> str:
        return f"{self.file}: {self.group}: {self.name}"


@dataclass(frozen=True)
class SchemaGroup:
    """One schema of the suite with its tests."""

    catalogue: str
    schema: Any
    tests: tuple[SchemaTest, ...]


def schema_groups() -> list[SchemaGroup]:
    """Every group of the suite, what is optional at the end."""
    folder = suite("json-schema-test-suite") / "tests" / "draft2020-12"
    groups: list[SchemaGroup] = []
    for file in [*sorted(folder.glob("*.json")), *sorted(folder.glob("optional/**/*.json"))]:
        name = str(file.relative_to(folder))
        for group in json.loads(file.read_text(encoding="utf-8")):
            about = group["description"]
            tests = tuple(
                SchemaTest(name, about, test["description"], test["data"], test["valid"])
                for test in group["tests"]
            )
            groups.append(SchemaGroup(f"g{len(groups)}", group["schema"], tests))
    return groups


def json_files() -> list[tuple[str, bytes]]:
    """Name and bytes of every parsing and transform file of JSONTestSuite."""
    folder = suite("jsontestsuite")
    files = [*sorted((folder / "test_parsing").iterdir()), *sorted((folder / "test_transform").iterdir())]
    return [(file.name, file.read_bytes()) for file in files]


def canonical_documents() -> Iterator[tuple[str, bytes, bytes]]:
    """Name, input and canonical output of each document of RFC 8785's vectors."""
    data = suite("jcs-rfc8785") / "testdata"
    for file in sorted((data / "input").iterdir()):
        yield file.stem, file.read_bytes(), (data / "output" / file.name).read_bytes()


def canonical_numbers() -> list[tuple[float, str]]:
    """Each number of RFC 8785's vectors, and how it is written."""
    found = []
    for line in (suite("jcs-rfc8785") / "es6testfile10k.txt").read_text().splitlines():
        bits, expected = line.split(",")
        (number,) = struct.unpack(">d", bytes.fromhex(bits.rjust(16, "0")))
        found.append((number, expected))
    return found


def naughty_strings() -> list[str]:
    """The big list of naughty strings."""
    found: list[str] = json.loads((suite("naughty-strings") / "blns.json").read_text(encoding="utf-8"))
    return found
