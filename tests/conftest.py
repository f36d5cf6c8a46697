"""What every test gets: selection by account, named packages, short and reachable folders, no leftovers."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.process import TOKEN_VARIABLE, processes_with_token
from tests.support.store import shared_server, wanted
from tests.support.system import require_system_package
from tests.support.wait import until

TOKEN = pytest.StashKey[str]()
LEFTOVERS = pytest.StashKey[dict[int, str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Give the run its token, which whatever it starts inherits; make every random failure repeatable."""
    config.stash[TOKEN] = os.environ[TOKEN_VARIABLE] = uuid.uuid4().hex
    # No time limit an example: two busy cores are no fault of the code. pytest's own limit stands.
    settings.register_profile("interlock", deadline=None, print_blob=True)
    settings.load_profile("interlock")
    config.addinivalue_line("markers", "sqlite: is about the files of the ledger on SQLite")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that this run is for: `./run` makes one as root and one as an ordinary account."""
    selection = os.environ.get("INTERLOCK_TEST_SELECTION")
    if selection is None:
        return
    kept = [item for item in items if (item.get_closest_marker("root") is not None) == (selection == "root")]
    dropped = [item for item in items if item not in kept]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip by name what cannot run here."""
    if item.get_closest_marker("root") is not None and os.geteuid() != 0:
        pytest.skip("needs to start as root")
    if item.get_closest_marker("sqlite") is not None and wanted() != "sqlite":
        pytest.skip("is about SQLite's files")
    for marker in item.iter_markers("system_package"):
        require_system_package(*marker.args)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run when a process that it started still lives; a moment to go is given first."""
    token = session.config.stash[TOKEN]
    try:
        until(lambda: not processes_with_token(token), seconds=2, what="every process of the tests is gone")
    except AssertionError:
        session.config.stash[LEFTOVERS] = processes_with_token(token)
        if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the processes that were left behind."""
    for pid, command in config.stash.get(LEFTOVERS, {}).items():
        terminalreporter.write_line(f"FAILED: left behind: {pid} {command}", red=True)


@pytest.fixture(scope="session", autouse=True)
def database_server() -> Iterator[None]:
    """The server that every system of the run has a database on, where the tests are to run on one."""
    if wanted() == "sqlite":
        yield
        return
    with shared_server():
        yield


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed for this test's randomness; printed with a failure, set again with INTERLOCK_SEED."""
    value = int(os.environ.get("INTERLOCK_SEED") or random.SystemRandom().randrange(2**32))
    print(f"INTERLOCK_SEED={value}  # {request.node.nodeid}")
    return value


@pytest.fixture
def rng(seed: int) -> random.Random:
    """A generator of this test's own, seeded and printed."""
    return random.Random(seed)


@pytest.fixture
def short_tmp_path() -> Iterator[Path]:
    """A folder with a path short enough for unix sockets (they end at 107 bytes)."""
    folder = Path(tempfile.mkdtemp(prefix="s"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def reachable_tmp_path() -> Iterator[Path]:
    """A folder that every account can enter, and all above it: where another id or a sandbox looks."""
    folder = Path(tempfile.mkdtemp(prefix="r"))
    folder.chmod(0o755)
    closed = [parent for parent in folder.parents if not parent.stat().st_mode & 0o001]
    if closed:
        pytest.fail(f"{closed[0]} is closed to others: set TMPDIR to a folder that is not", pytrace=False)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
