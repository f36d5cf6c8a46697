"""The broker's server: quick to start, closed to others, and never in the way of the next start."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from gateway.embedded import kernel
from gateway.embedded.adapters.valkey import answers, find_server
from gateway.embedded.broker import BrokerServer, BrokerSettings, files_set_aside
from gateway.embedded.directory import DataDirectory, prepare
from gateway.embedded.error import BrokerError
from tests.support.wait import until

START_SECONDS_MAX = 0.3
ROOT = Path(__file__).parents[3]


@pytest.fixture
def directory(short_tmp_path: Path) -> DataDirectory:
    made = DataDirectory.at(short_tmp_path / "data")
    prepare(made)
    return made


@pytest.fixture
def server(directory: DataDirectory) -> Iterator[BrokerServer]:
    server = BrokerServer(directory, find_server(os.environ))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def client(server: BrokerServer, directory: DataDirectory) -> Iterator[Redis]:
    retry = Retry(NoBackoff(), 1)  # once: each kill of the server closes the connection
    with Redis(unix_socket_path=str(directory.broker_socket), socket_timeout=10, retry=retry) as client:
        yield client


def newest_log_of_commands(directory: DataDirectory) -> Path:
    return max((directory.broker / "appendonlydir").glob("*.incr.aof"))


def overwrite_inside(path: Path) -> None:
    length = path.stat().st_size
    with open(path, "r+b") as file:
        file.seek(length // 3)
        file.write(b"\0" * min(300, length // 3))


def fill(client: Redis, count: int) -> None:
    for number in range(count):
        client.set(f"key-{number}", "value" * 20)
    client.waitaof(1, 0, 5000)


def test_answers_soon_after_its_start(directory: DataDirectory) -> None:
    server = BrokerServer(directory, find_server(os.environ))
    times = []
    for _ in range(3):
        began = time.monotonic()
        server.start()
        times.append(time.monotonic() - began)
        server.kill()

    assert min(times) <= START_SECONDS_MAX, times


def test_only_its_account_can_open_the_socket(server: BrokerServer, directory: DataDirectory) -> None:
    assert stat.S_IMODE(directory.broker_socket.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(directory.broker_socket.stat().st_mode) == 0o600


def test_it_listens_on_no_network_address(server: BrokerServer) -> None:
    assert server.pid is not None
    inodes = {os.readlink(link) for link in Path(f"/proc/{server.pid}/fd").iterdir()}
    network = {
        f"socket:[{line.split()[9]}]"
        for table in ("tcp", "tcp6")
        if Path(f"/proc/net/{table}").exists()
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    }

    assert inodes & network == set()


def test_kill_and_restart_keep_what_was_written(server: BrokerServer, client: Redis) -> None:
    fill(client, 500)

    server.kill()
    server.start()

    assert client.dbsize() == 500


def test_a_cut_tail_costs_the_last_command_only(
    server: BrokerServer, client: Redis, directory: DataDirectory
) -> None:
    fill(client, 500)
    server.kill()
    file = newest_log_of_commands(directory)
    os.truncate(file, file.stat().st_size - 5)

    server.start()

    assert client.dbsize() == 499
    assert files_set_aside(directory) == []


@pytest.mark.parametrize("place", ["commands", "base", "manifest", "missing"])
def test_files_that_cannot_be_read_are_set_aside_and_it_starts_empty(
    server: BrokerServer, client: Redis, directory: DataDirectory, place: str
) -> None:
    fill(client, 500)
    server.kill()
    folder = directory.broker / "appendonlydir"
    pattern = {"commands": "*.incr.aof", "base": "*.base.rdb", "manifest": "*.manifest"}.get(place, "*.rdb")
    damage = Path.unlink if place == "missing" else overwrite_inside
    damaged = next(folder.glob(pattern))
    damage(damaged)

    server.start()

    assert client.dbsize() == 0
    (aside,) = files_set_aside(directory)
    assert (aside / damaged.name).exists() is (place != "missing")
    assert "starting empty" in (directory.broker / "valkey.log").read_text()
    client.set("after", "1")
    client.waitaof(1, 0, 5000)
    server.kill()
    server.start()
    assert (client.dbsize(), len(files_set_aside(directory))) == (1, 1)


def test_a_second_server_on_the_same_files_is_refused(
    server: BrokerServer, client: Redis, directory: DataDirectory
) -> None:
    client.set("kept", "1")
    second = BrokerServer(directory, find_server(os.environ))

    with pytest.raises(BrokerError):
        second.start(wait_seconds=0.3)

    assert client.get("kept") == b"1"


def test_an_item_over_the_limit_is_refused_at_its_producer(server: BrokerServer, client: Redis) -> None:
    client.lpush("interlock.propose", b"x" * (4 * 2**20))

    with pytest.raises((RedisError, OSError)):
        client.lpush("interlock.propose", b"x" * (4 * 2**20 + 1))

    assert client.llen("interlock.propose") == 1


def test_a_full_server_refuses_and_drops_nothing(directory: DataDirectory) -> None:
    server = BrokerServer(directory, find_server(os.environ), BrokerSettings(memory_limit_bytes=8 * 2**20))
    server.start()
    try:
        with Redis(unix_socket_path=str(directory.broker_socket)) as client:
            client.lpush("first", "1")
            with pytest.raises(RedisError, match="memory"):
                until(lambda: client.lpush("full", b"x" * 2**20) > 100, 30, "100 MiB are taken by 8")
            assert client.lrange("first", 0, -1) == [b"1"]
    finally:
        server.kill()


def test_it_dies_with_a_killed_parent_and_the_next_start_gets_its_files(directory: DataDirectory) -> None:
    program = (
        "import os, sys, threading\n"
        "from gateway.embedded.adapters.valkey import find_server\n"
        "from gateway.embedded.broker import BrokerServer\n"
        "from gateway.embedded.directory import DataDirectory\n"
        "server = BrokerServer(DataDirectory.at(sys.argv[1]), find_server(os.environ))\n"
        "server.start()\n"
        "print(server.pid, flush=True)\n"
        "threading.Event().wait()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(directory.path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        identity = kernel.identify(int(parent.stdout.readline()))
        assert identity is not None
        parent.send_signal(signal.SIGKILL)

        next_server = BrokerServer(directory, find_server(os.environ))
        next_server.start()

    assert not kernel.is_alive(identity)
    assert next_server.pid != identity.pid
    next_server.kill()


def test_a_socket_that_nobody_serves_does_not_answer(directory: DataDirectory) -> None:
    assert not answers(directory.broker_socket)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(directory.broker_socket))
        silent.listen()
        assert not answers(directory.broker_socket, timeout_seconds=0.05)
