"""Where things lie, whom a directory belongs to, and what makes one unfit."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.embedded import directory as layout
from gateway.embedded import kernel
from gateway.embedded.directory import (
    SOCKET_PATH_BYTES_MAX,
    DataDirectory,
    default_path,
    layout_version,
    prepare,
    refuse_network_filesystem,
    write_atomically,
)
from gateway.embedded.error import DataDirectoryError
from gateway.embedded.ready import announce_ready, read_ready, withdraw_ready
from gateway.embedded.start_lock import StartLock, lock_owner
from interlock.errors import AlreadyRunningError


@pytest.fixture
def made(tmp_path: Path) -> Iterator[DataDirectory]:
    made = DataDirectory.at(tmp_path / "data")
    prepare(made)
    yield made
    if made.short_folder.exists():
        for left in made.short_folder.iterdir():
            left.unlink()
        made.short_folder.rmdir()


def test_prepare_makes_every_folder_for_its_account_only(made: DataDirectory) -> None:
    folders = [made.path, *(path for path in made.path.rglob("*") if path.is_dir())]

    assert {folder.name for folder in folders} >= {"keys", "broker", "run", "boots", "spool", "logs", "home"}
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}
    assert layout_version(made) == layout.LAYOUT_VERSION


def test_prepare_twice_changes_nothing(made: DataDirectory) -> None:
    (made.keys / "governance.key").write_text("kept")

    prepare(made)

    assert (made.keys / "governance.key").read_text() == "kept"


def test_prepare_goes_on_where_a_killed_one_stopped(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / ".layout.json.77").write_text("{")
    (tmp_path / "ledger.db-wal").write_text("")

    prepare(DataDirectory.at(tmp_path))

    assert layout_version(DataDirectory.at(tmp_path)) == layout.LAYOUT_VERSION


def test_a_folder_with_other_things_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "holiday.jpg").write_text("")

    with pytest.raises(DataDirectoryError, match="not ours"):
        prepare(DataDirectory.at(tmp_path))

    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.jpg"]


def test_a_place_where_nothing_can_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(DataDirectoryError, match="cannot be made"):
        prepare(DataDirectory.at(tmp_path / "file" / "data"))


def test_a_layout_of_another_version_is_refused(made: DataDirectory) -> None:
    write_atomically(made.layout, {"version": 99})

    with pytest.raises(DataDirectoryError, match="99"):
        prepare(made)


@pytest.mark.parametrize("name", ["a?b", "a#b", "a\nb"])
def test_a_name_that_no_database_url_can_hold_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataDirectoryError):
        DataDirectory.at(tmp_path / name)


@pytest.mark.parametrize("kind", sorted(layout.NETWORK_FILESYSTEMS))
def test_network_file_systems_are_refused(kind: int) -> None:
    with pytest.raises(DataDirectoryError, match="network file system") as refused:
        refuse_network_filesystem(Path("/data"), kind)

    assert refused.value.code == "DATA_ON_NETWORK_FS"


def test_local_file_systems_are_not_refused(tmp_path: Path) -> None:
    refuse_network_filesystem(tmp_path, kernel.filesystem_type(tmp_path))


def test_the_kernel_names_the_file_system_of_proc() -> None:
    assert kernel.filesystem_type(Path("/proc")) == 0x9FA0


def test_sockets_lie_in_the_directory_when_their_path_is_short_and_plain() -> None:
    plain = DataDirectory.at("/var/lib/interlock/data")

    assert plain.broker_socket == Path("/var/lib/interlock/data/broker/vk.sock")
    assert plain.control_socket == Path("/var/lib/interlock/data/run/control.sock")
    assert plain.broker_url == "redis+socket:///var/lib/interlock/data/broker/vk.sock?virtual_host=0"


@pytest.mark.parametrize("name", ["d" * 120, "with space", "with'quote", "ü"])
def test_other_sockets_get_a_short_folder_of_their_own(name: str) -> None:
    odd = DataDirectory.at(f"/var/lib/{name}")

    assert odd.broker_socket.parent == odd.short_folder == odd.control_socket.parent
    assert len(os.fsencode(odd.broker_socket)) <= SOCKET_PATH_BYTES_MAX
    assert odd.short_folder != DataDirectory.at(f"/var/lib/{name}2").short_folder


def test_the_short_folder_is_private_and_recorded(tmp_path: Path) -> None:
    odd = DataDirectory.at(tmp_path / "with space")

    prepare(odd)
    try:
        assert stat.S_IMODE(odd.short_folder.stat().st_mode) == 0o700
        assert json.loads((odd.run / "short-folder.json").read_text()) == {"path": str(odd.short_folder)}
    finally:
        odd.short_folder.rmdir()


def test_a_short_folder_that_others_could_enter_is_refused(tmp_path: Path) -> None:
    odd = DataDirectory.at(tmp_path / "with space")
    odd.short_folder.mkdir()
    odd.short_folder.chmod(0o755)
    try:
        with pytest.raises(DataDirectoryError, match="private"):
            prepare(odd)
    finally:
        odd.short_folder.rmdir()


def test_a_second_start_is_refused_and_names_the_first(made: DataDirectory) -> None:
    lock = StartLock.take(made)
    try:
        with pytest.raises(AlreadyRunningError) as refused:
            StartLock.take(made)
        assert refused.value.pid == os.getpid() == lock_owner(made)
    finally:
        lock.release()


def test_the_lock_is_free_again_after_its_release(made: DataDirectory) -> None:
    StartLock.take(made).release()

    StartLock.take(made).release()


def test_a_number_used_again_by_another_process_is_no_living_owner(made: DataDirectory) -> None:
    own = kernel.own_identity()
    made.start_lock.write_text(
        json.dumps({"pid": own.pid, "start_ticks": own.start_ticks - 1, "boot_id": own.boot_id})
    )

    assert lock_owner(made) is None


def test_ready_is_read_back_while_its_owner_lives(made: DataDirectory) -> None:
    announce_ready(made, kernel.own_identity(), "1.2.3")

    held = json.loads(made.ready_file.read_text())
    ready = read_ready(made)

    assert held["url"] is None
    assert {"url", "pid", "broker_url", "ledger_url", "version"} <= set(held)
    assert ready is not None
    assert (ready.pid, ready.version) == (os.getpid(), "1.2.3")
    assert ready.ledger_url == f"sqlite:///{made.ledger}"


@pytest.mark.parametrize("changed", [{"boot_id": "another"}, {"start_ticks": 1}, {"pid": 2**22 + 1}])
def test_a_stale_ready_file_reads_as_none(made: DataDirectory, changed: dict[str, object]) -> None:
    announce_ready(made, kernel.own_identity(), "1.2.3")
    write_atomically(made.ready_file, {**json.loads(made.ready_file.read_text()), **changed})

    assert read_ready(made) is None


def test_withdrawing_twice_is_harmless(made: DataDirectory) -> None:
    announce_ready(made, kernel.own_identity(), "1.2.3")

    withdraw_ready(made)
    withdraw_ready(made)

    assert read_ready(made) is None


@pytest.mark.parametrize(
    ("environment", "uid", "path"),
    [
        ({"INTERLOCK_DATA": "/d", "XDG_STATE_HOME": "/s"}, 0, "/d"),
        ({"HOME": "/root"}, 0, "/var/lib/interlock/data"),
        ({"XDG_STATE_HOME": "/s", "HOME": "/h"}, 1000, "/s/interlock"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/h"}, 1000, "/h/.local/state/interlock"),
        ({"HOME": "/h"}, 1000, "/h/.local/state/interlock"),
    ],
)
def test_the_default_directory_follows_settings_account_and_home(
    environment: dict[str, str], uid: int, path: str
) -> None:
    assert default_path(environment, uid) == Path(path)
