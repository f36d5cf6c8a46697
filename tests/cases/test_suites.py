"""The outside suites in short form: what is on record by name, and a seeded sample of the rest, end to end.

The full form is `./run prove suites`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.suites.bfcl import prove_leaderboard
from tests.suites.command import prove_commands
from tests.suites.naughty import prove_strings
from tests.suites.numbers import prove_canonical
from tests.suites.parsing import prove_parsing
from tests.suites.producer import Producer
from tests.suites.producer import producer as connected
from tests.suites.schema import prove_schemas
from tests.support.live import Live


@pytest.fixture(scope="module")
def producer(live: Live) -> Iterator[Producer]:
    """One producer on the system of this module."""
    with connected(live) as one:
        yield one


def test_the_leaderboards_calls_are_judged_as_documented(producer: Producer, rng: random.Random) -> None:
    print(prove_leaderboard(producer, rng, 60))


def test_the_schema_suite_is_judged_as_documented(producer: Producer, rng: random.Random) -> None:
    print(prove_schemas(producer, rng, 60))


def test_every_file_of_jsontestsuite_is_judged_as_documented(producer: Producer, rng: random.Random) -> None:
    print(prove_parsing(producer, rng, 340))


def test_canonical_bytes_are_those_of_the_standard(producer: Producer, rng: random.Random) -> None:
    print(prove_canonical(producer, rng, 1_000))


def test_naughty_strings_come_back_as_they_were(producer: Producer, rng: random.Random, folder: Path) -> None:
    print(prove_strings(producer, rng, 60, folder))


def test_every_suite_goes_through_the_command_line(
    producer: Producer, rng: random.Random, folder: Path
) -> None:
    print(prove_commands(producer, rng, 1, folder))
