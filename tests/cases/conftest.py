"""Public bug reports retold as inputs, each tried by every face of one running system."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.commanding import command_server
from tests.support.live import FACES, Face, Live, running
from tests.support.source import ROOT

CASES = ROOT.parent / "shared" / "cases"


@pytest.fixture(scope="session", autouse=True)
def commands() -> Iterator[None]:
    """Whatever runs commands here forks them."""
    with command_server():
        yield


@pytest.fixture(scope="session")
def case() -> Callable[[str], Any]:
    """Finds a case by its id; skips where the cases are not beside the project."""
    if not CASES.is_dir():
        pytest.skip("the cases are not beside the project")
    lines = [
        line for name in ("cases", "spare") for line in (CASES / f"{name}.jsonl").read_text().splitlines()
    ]
    found = {entry["id"]: entry for entry in map(json.loads, lines)}
    return lambda name: found[name]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One running system a module."""
    with running(tmp_path_factory.mktemp("live")) as system:
        yield system


@pytest.fixture(params=sorted(FACES))
def face(request: pytest.FixtureRequest) -> Face:
    """Each way in."""
    return FACES[request.param]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a test writes its files."""
    return tmp_path
