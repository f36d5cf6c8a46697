"""`up` with real forks and a real broker: start, ordered stop, restarts, and the death of any process."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from redis import Redis

from gateway.embedded import kernel
from gateway.embedded.broker import is_ready
from gateway.embedded.control import ask
from gateway.embedded.ready import read_ready
from gateway.embedded.start_lock import lock_owner
from interlock.errors import NotRunningError
from tests.integration.embedded.started import StartSystem
from tests.support.wait import until

SEVEN = {"governor", "scheduler", "pool-pure", "pool-fs", "pool-shell", "pool-network", "projector"}
GONE_SECONDS = 2.0


def assert_all_gone(everybody: set[kernel.ProcessIdentity], seconds: float) -> None:
    until(
        lambda: not any(map(kernel.is_alive, everybody)),
        seconds,
        f"none of the {len(everybody)} processes lives",
    )


def test_is_ready_with_every_role_within_three_seconds(start_system: StartSystem) -> None:
    began = time.monotonic()
    system = start_system().wait_ready()

    assert time.monotonic() - began < 3.0
    roles = system.status()
    assert set(roles) == SEVEN | {"broker"}
    assert all(role["ready"] for role in roles.values())
    assert is_ready(system.directory)
    assert lock_owner(system.directory) == system.pid


def test_ready_file_says_where_the_stores_are(start_system: StartSystem) -> None:
    system = start_system().wait_ready()

    ready = read_ready(system.directory)

    assert ready is not None
    assert (ready.pid, ready.url, ready.version) == (system.pid, None, "0.0.test")
    assert ready.broker_url == system.directory.broker_url
    assert ready.ledger_url == system.directory.ledger_url


def test_roles_share_what_the_parent_imported_and_speak_into_logs_of_their_own(
    start_system: StartSystem,
) -> None:
    system = start_system().wait_ready()

    for name in SEVEN:
        assert system.directory.log_of(name).read_text() == f"{name} shares sqlite3: True\n"


def test_every_role_leads_a_session_of_its_own(start_system: StartSystem) -> None:
    system = start_system().wait_ready()

    pids = [system.role_pid(name) for name in SEVEN | {"broker"}]

    assert [os.getsid(pid) for pid in pids] == pids


def test_stops_in_order_and_leaves_nothing_running(start_system: StartSystem) -> None:
    system = start_system().wait_ready()
    everybody = system.everybody()
    assert len(everybody) == 2 + 8

    system.process.send_signal(signal.SIGTERM)
    status, out, err = system.wait_end()

    assert (status, out.count("\n"), err) == (0, 1, "stopping\nstopped\n")
    ended = (system.directory.run / "ended").read_text().split()
    assert [set(ended[:2]), set(ended[2:6]), set(ended[6:])] == [
        {"governor", "scheduler"},
        {"pool-pure", "pool-fs", "pool-shell", "pool-network"},
        {"projector"},
    ]
    assert not any(map(kernel.is_alive, everybody))
    assert not system.directory.ready_file.exists()
    assert not system.directory.control_socket.exists()


def test_ctrl_c_in_the_terminal_reaches_the_foreground_process_only(start_system: StartSystem) -> None:
    system = start_system().wait_ready()

    os.killpg(system.pid, signal.SIGINT)
    status, _, err = system.wait_end()

    assert (status, err) == (0, "stopping\nstopped\n")
    assert set((system.directory.run / "ended").read_text().split()) == SEVEN


def test_what_overstays_its_drain_is_killed(start_system: StartSystem) -> None:
    system = start_system("stubborn").wait_ready()

    system.process.send_signal(signal.SIGTERM)
    status, _, _ = system.wait_end(seconds=30)

    assert status == 0


def test_a_second_ctrl_c_kills_at_once(start_system: StartSystem) -> None:
    system = start_system("patient").wait_ready()
    everybody = system.everybody()

    def ended_after_another_ctrl_c() -> bool:
        system.process.send_signal(signal.SIGINT)
        return system.process.poll() is not None

    until(ended_after_another_ctrl_c, 30, "a second Ctrl-C ends what would drain for 100 s")

    assert not any(map(kernel.is_alive, everybody))


def test_stops_when_asked_on_the_control_socket(start_system: StartSystem) -> None:
    system = start_system().wait_ready()

    assert ask(system.directory, {"do": "stop"})["stopping"] is True

    assert system.wait_end()[0] == 0
    with pytest.raises(NotRunningError):
        ask(system.directory, {"do": "status"})


def test_continues_on_the_same_directory_after_a_restart(start_system: StartSystem) -> None:
    first = start_system().wait_ready()
    with Redis(unix_socket_path=str(first.directory.broker_socket)) as client:
        client.lpush("interlock.propose", "kept")
    first.process.send_signal(signal.SIGTERM)
    assert first.wait_end()[0] == 0

    second = start_system().wait_ready()

    with Redis(unix_socket_path=str(second.directory.broker_socket)) as client:
        assert client.lrange("interlock.propose", 0, -1) == [b"kept"]


def test_killed_foreground_leaves_nothing_within_two_seconds_and_starts_again_at_once(
    start_system: StartSystem,
) -> None:
    system = start_system("children").wait_ready()
    everybody = system.everybody()
    assert len(everybody) == 2 + 9 + 2

    system.process.kill()
    again = start_system()

    assert_all_gone(everybody, GONE_SECONDS)
    again.wait_ready()
    assert read_ready(again.directory) is not None


def test_killed_parent_of_the_roles_leaves_nothing_and_the_foreground_says_so(
    start_system: StartSystem,
) -> None:
    system = start_system("children").wait_ready()
    everybody = system.everybody()

    os.kill(system.parent_pid(), signal.SIGKILL)

    assert_all_gone(everybody, GONE_SECONDS)
    status, _, err = system.wait_end()
    assert status == 1
    assert "everything is stopped" in err
    assert read_ready(system.directory) is None
    start_system().wait_ready()


def test_both_killed_together_leave_no_role(start_system: StartSystem) -> None:
    system = start_system().wait_ready()
    everybody = system.everybody()

    for pid in (system.parent_pid(), system.pid):
        os.kill(pid, signal.SIGKILL)

    assert_all_gone(everybody, GONE_SECONDS)
    start_system().wait_ready()


@pytest.mark.parametrize("name", ["governor", "pool-shell", "projector", "broker"])
def test_a_killed_role_is_started_again_and_counted(start_system: StartSystem, name: str) -> None:
    system = start_system().wait_ready()
    before = system.status()
    pid = before[name]["pid"]
    assert isinstance(pid, int)

    os.kill(pid, signal.SIGKILL)
    until(lambda: system.status()[name]["restarts"] == 1, 30, f"{name} is counted as restarted")
    until(lambda: system.status()[name]["ready"], 30, f"{name} is ready again")
    after = system.status()

    assert after[name]["pid"] != pid
    assert after[name]["last_exit"] == -signal.SIGKILL
    assert {n: r["pid"] for n, r in after.items() if n != name} == {
        n: r["pid"] for n, r in before.items() if n != name
    }


def test_a_killed_broker_comes_back_with_its_data(start_system: StartSystem) -> None:
    system = start_system().wait_ready()
    with Redis(unix_socket_path=str(system.directory.broker_socket)) as client:
        client.set("kept", "yes")
        client.waitaof(1, 0, 5000)

    os.kill(system.role_pid("broker"), signal.SIGKILL)
    until(lambda: system.status()["broker"]["ready"], 30, "the broker is ready again")

    with Redis(unix_socket_path=str(system.directory.broker_socket)) as client:
        assert client.get("kept") == b"yes"


def test_a_second_start_on_the_same_directory_is_refused_and_names_the_first(
    start_system: StartSystem,
) -> None:
    first = start_system().wait_ready()

    status, out, err = start_system().wait_end()

    assert (status, out) == (2, "")
    assert f"ALREADY_RUNNING: process {first.pid} holds" in err
    assert all(role["ready"] for role in first.status().values())


@pytest.mark.parametrize(
    ("variation", "said"),
    [
        ("crashing", "role crashing ended 5 times (70)"),
        ("never-ready", "role never-ready was not ready after 1 s"),
        ("threaded-preload", "has threads after the imports"),
        ("bad-preload", "RuntimeError: an import failed"),
    ],
)
def test_a_start_that_fails_says_why_and_leaves_nothing(
    start_system: StartSystem, variation: str, said: str
) -> None:
    system = start_system(variation)

    status, out, err = system.wait_end()

    assert (status, out) == (1, "")
    assert said in err
    assert not system.directory.ready_file.exists()
    start_system().wait_ready()


def test_a_crash_is_found_in_the_log_of_its_role(start_system: StartSystem) -> None:
    system = start_system("crashing")

    _, _, err = system.wait_end()

    log = system.directory.log_of("crashing")
    assert str(log) in err
    assert "crashed as it was told to" in log.read_text()


def test_a_role_that_is_not_essential_holds_nothing_up(start_system: StartSystem) -> None:
    system = start_system("crashing-aside").wait_ready()

    until(
        lambda: system.status()["crashing-aside"]["restarts"] not in (0, 1),
        5,
        "it is started again and again",
    )

    system.process.send_signal(signal.SIGTERM)
    assert system.wait_end()[0] == 0


def test_a_stop_that_comes_while_it_starts_is_obeyed(start_system: StartSystem) -> None:
    system = start_system("patient")
    until(lambda: system.directory.control_socket.exists(), 30, "the parent listens")

    system.process.send_signal(signal.SIGINT)

    def ended_after_another_ctrl_c() -> bool:
        system.process.send_signal(signal.SIGINT)
        return system.process.poll() is not None

    until(ended_after_another_ctrl_c, 30, "it ended")


@pytest.mark.parametrize("name", ["with space and 'quote\"", "d" * 120])
def test_any_folder_name_does(start_system: StartSystem, reachable_tmp_path: Path, name: str) -> None:
    system = start_system(folder=reachable_tmp_path / name).wait_ready()
    folder = system.short_folder()
    assert {path.name for path in folder.iterdir()} == {"vk.sock", "control.sock"}

    system.process.send_signal(signal.SIGTERM)
    status, _, _ = system.wait_end()

    assert status == 0
    assert not folder.exists()


def test_an_idle_parent_does_not_poll(start_system: StartSystem) -> None:
    system = start_system().wait_ready()
    parent = system.parent_pid()
    fields = Path(f"/proc/{parent}/status")

    def switches() -> int:
        lines = fields.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt"))

    before = switches()
    with pytest.raises(AssertionError):
        until(lambda: switches() - before > 5, 0.5, "the parent woke up again and again")
