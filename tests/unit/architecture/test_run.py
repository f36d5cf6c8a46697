"""The one command: which interpreter it takes, what it says when it cannot, and what it never overlooks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.source import ROOT
from tests.support.system import needs_system_package
from tests.support.wait import until


@pytest.fixture(scope="module")
def run() -> ModuleType:
    loader = SourceFileLoader("run_script", str(ROOT / "run"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


def script(folder: Path, text: str) -> str:
    """A stand-in for an interpreter that answers the probe with `text`."""
    path = folder / "python3"
    path.write_text(f"#!/bin/sh\necho '{text}'\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_takes_an_interpreter_that_can_be_executed_and_is_new_enough(run: ModuleType) -> None:
    assert run.what_is_wrong_with(run.pick_interpreter()) is None


def test_names_the_package_when_environments_cannot_be_made(
    run: ModuleType, reachable_tmp_path: Path
) -> None:
    python = script(reachable_tmp_path, '[true, "3.12", false]')
    said = run.what_is_wrong_with(python)
    assert said == f"{python} cannot make environments (no ensurepip): apt-get install python3.12-venv"


def test_says_which_version_is_too_old(run: ModuleType, reachable_tmp_path: Path) -> None:
    python = script(reachable_tmp_path, '[false, "3.9", true]')
    assert run.what_is_wrong_with(python) == f"{python} is Python 3.9; 3.11 or newer is needed"


def test_names_the_interpreter_that_cannot_be_executed(run: ModuleType, tmp_path: Path) -> None:
    said = run.what_is_wrong_with(str(tmp_path / "absent"))
    assert said.startswith(f"{tmp_path}/absent cannot be executed by ")


@pytest.mark.root
def test_keeps_a_checkout_that_only_root_can_enter_elsewhere(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(run, "REPO", closed)
    place = run.find_place(run.pick_interpreter())
    try:
        assert place.root.parent == Path("/var/lib/interlock")
        assert not place.is_checkout
    finally:
        place.root.rmdir()


def test_a_changed_source_file_changes_what_is_installed(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in run.PACKAGES:
        (tmp_path / package).mkdir()
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(run, "REPO", tmp_path)
    before = run.source_digest()
    (tmp_path / "interlock" / "new.py").touch()
    assert run.source_digest() != before


def test_a_process_left_behind_without_environment_or_session_is_found_and_ended(tmp_path: Path) -> None:
    leave = "import subprocess; print(subprocess.Popen(['sleep', '600'], env={}, start_new_session=True).pid)"
    done = subprocess.run(
        [sys.executable, "tests/support/watch.py", sys.executable, "-W", "ignore", "-c", leave],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    pid = done.stdout.split()[0]
    assert done.returncode == 1
    assert f"outlived them: {pid} sleep 600" in done.stdout
    until(lambda: not Path(f"/proc/{pid}").exists(), seconds=30, what="the process left behind is gone")


def run_tests_of(folder: Path, text: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Pytest's run of one file with this project's own conftest."""
    (folder / "conftest.py").write_text("from tests.conftest import *\n", encoding="utf-8")
    (folder / "test_inner.py").write_text(textwrap.dedent(text), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder)]
    command += ["-o", f"cache_dir={folder}/cache", str(folder)]
    environ = {**os.environ, "INTERLOCK_TEST_SELECTION": "ordinary", **env}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environ)


def test_a_run_that_leaves_a_process_fails_and_names_it(tmp_path: Path) -> None:
    done = run_tests_of(
        tmp_path,
        """
        import subprocess
        def test_leaves(tmp_path):
            child = subprocess.Popen(["sleep", "600"], start_new_session=True)
            child.returncode = 0
        """,
    )
    assert done.returncode == 1, done.stdout
    assert "1 passed" in done.stdout
    # It outlives the run however busy the machine is, so it is ended here.
    named = re.search(r"FAILED: left behind: (\d+) sleep 600", done.stdout)
    assert named, done.stdout
    os.kill(int(named[1]), signal.SIGKILL)


@pytest.mark.parametrize(("ci", "outcome", "code"), [("false", "1 skipped", 0), ("true", "1 error", 1)])
def test_an_absent_system_package_skips_at_home_and_fails_in_ci(
    tmp_path: Path, ci: str, outcome: str, code: int
) -> None:
    done = run_tests_of(
        tmp_path,
        """
        from tests.support.system import needs_system_package
        @needs_system_package("no-such-package")
        def test_needs(): ...
        """,
        CI=ci,
    )
    assert done.returncode == code, done.stdout
    assert outcome in done.stdout
    assert "apt-get install no-such-package" in done.stdout or code == 0


def test_a_test_that_hangs_ends_with_every_stack(tmp_path: Path) -> None:
    done = run_tests_of(
        tmp_path,
        """
        import threading, pytest
        def wait_in_a_thread(): threading.Event().wait(5)
        @pytest.mark.timeout(1)
        def test_hangs():
            thread = threading.Thread(target=wait_in_a_thread, daemon=True)
            thread.start()
            thread.join()
        """,
    )
    assert done.returncode == 1
    assert "in wait_in_a_thread" in done.stdout + done.stderr


@needs_system_package("git")
def test_git_is_there_for_the_tests_that_make_repositories() -> None:
    assert subprocess.run(["git", "--version"], check=False, capture_output=True).returncode == 0
