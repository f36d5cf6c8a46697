"""Directories to run commands on: one of a stopped system, one of a running one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.support import Directory, fill, running_on
from tests.support.commanding import command_server
from tests.support.postgres import postgres as postgres
from tests.support.postgres import postgres_url as postgres_url
from tests.support.store import stored


@pytest.fixture(scope="session", autouse=True)
def commands() -> Iterator[None]:
    """Whatever runs commands here forks them."""
    with command_server():
        yield


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[Directory]:
    """A stopped system's directory."""
    with stored(tmp_path / "data") as data:
        directory = Directory(data.path)
        fill(directory)
        yield directory


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Directory]:
    """The directory of a system that runs; one for all tests of a module, each in a session of its own."""
    directory = Directory(tmp_path_factory.mktemp("up") / "data")
    with running_on(directory):
        yield directory
