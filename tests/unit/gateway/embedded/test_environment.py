"""What doctor finds on this machine and in a directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.embedded import environment as doctor
from gateway.embedded.directory import DataDirectory, prepare


@pytest.mark.parametrize(
    ("release", "state"),
    [("6.1.0-18-amd64", "ok"), ("5.13.0", "ok"), ("5.4.0-150-generic", "degraded"), ("odd", "degraded")],
)
def test_an_old_kernel_is_told(release: str, state: str) -> None:
    assert doctor.check_kernel(release).state == state


def test_a_directory_that_does_not_exist_yet_is_off_and_not_made(tmp_path: Path) -> None:
    directory = DataDirectory.at(tmp_path / "none")

    states = {check.name: check.state for check in doctor.check_all(directory, os.environ)}

    assert states["data_directory"] == states["running"] == states["broker"] == "off"
    assert states["broker_server"] == "ok"
    assert not directory.path.exists()


def test_a_fresh_directory_is_ok_and_one_that_lets_others_in_is_told(tmp_path: Path) -> None:
    directory = DataDirectory.at(tmp_path / "data")
    prepare(directory)
    assert doctor.check_directory(directory).state == "ok"

    directory.path.chmod(0o755)

    assert doctor.check_directory(directory).state == "degraded"
    assert "chmod 700" in doctor.check_directory(directory).remedy


@pytest.mark.parametrize(("kind", "state"), [(0x6969, "failed"), (0x01021994, "degraded"), (0xEF53, "ok")])
def test_the_file_system_decides_whether_data_is_safe(kind: int, state: str) -> None:
    assert doctor.check_filesystem(kind).state == state


def test_one_durable_write_is_measured_in_milliseconds(tmp_path: Path) -> None:
    assert 0 < doctor.measure_fsync(DataDirectory.at(tmp_path), 5) < 5_000
    assert list(tmp_path.iterdir()) == []


def test_files_that_were_set_aside_are_told(tmp_path: Path) -> None:
    directory = DataDirectory.at(tmp_path / "data")
    prepare(directory)
    (directory.broker / "appendonlydir.unreadable-20260101T000000000000Z").mkdir()

    assert doctor.check_broker(directory).state == "degraded"


def test_every_state_but_ok_comes_with_a_remedy(tmp_path: Path) -> None:
    checks = doctor.check_all(DataDirectory.at(tmp_path / "none"), {"PATH": "/none"})

    assert [check.name for check in checks if check.state not in ("ok",) and not check.remedy] in (
        [],
        ["broker"],
    )


def test_a_role_that_had_to_be_started_again_is_named() -> None:
    well = {"name": "pool-pure", "restarts": 0, "last_exit": None}
    assert doctor.judge_roles([well]).state == "ok"

    check = doctor.judge_roles([well, {"name": "pool-fs", "restarts": 2, "last_exit": 1}])

    assert (check.state, check.detail) == ("degraded", "started again: pool-fs 2 times (last exit 1)")


def test_the_roles_of_no_system_are_off(tmp_path: Path) -> None:
    assert doctor.check_roles(DataDirectory.at(tmp_path / "none")).state == "off"
