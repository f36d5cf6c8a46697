"""What is measured lies on a disk, and a plan is as large as it was asked to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.disk import choose_folder, fdatasync_p50_ms, refuse_unless_disk
from benchmarks.plan import N_DEFAULT, Plan
from benchmarks.process import spent, ticks_of_stat
from gateway.embedded.kernel import filesystem_type
from interlock.errors import UsageError

TMPFS, EXT4, NFS = 0x01021994, 0xEF53, 0x6969


@pytest.mark.parametrize(("kind", "name"), [(TMPFS, "tmpfs"), (NFS, "NFS")])
def test_memory_and_networks_are_refused_by_name(kind: int, name: str) -> None:
    with pytest.raises(UsageError, match=name):
        refuse_unless_disk(Path("/somewhere"), kind)


def test_a_disk_is_not_refused() -> None:
    refuse_unless_disk(Path("/somewhere"), EXT4)


def test_a_given_folder_in_memory_is_refused_rather_than_replaced(tmp_path: Path) -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir() or filesystem_type(memory) != TMPFS:
        pytest.skip("there is no tmpfs here")
    with pytest.raises(UsageError, match="tmpfs"):
        choose_folder(memory, [tmp_path])


def test_the_first_place_that_exists_is_taken(tmp_path: Path) -> None:
    if filesystem_type(tmp_path) == TMPFS:
        pytest.skip("the tests' own folder lies in memory")
    folder = choose_folder(None, [tmp_path / "missing", tmp_path])
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o755


def test_no_place_at_all_is_said() -> None:
    with pytest.raises(UsageError, match="--folder"):
        choose_folder(None, [Path("/missing-altogether")])


def test_the_probe_of_the_disk_leaves_nothing(tmp_path: Path) -> None:
    assert fdatasync_p50_ms(tmp_path, 3) > 0
    assert list(tmp_path.iterdir()) == []


def test_a_small_plan_is_small_in_everything() -> None:
    small, usual = Plan.of(100, None), Plan.of(None, None)
    assert (small.n, small.rounds, small.idle_submits) == (100, 3, 50)
    assert (usual.n, usual.idle_submits) == (N_DEFAULT, 200)


@pytest.mark.parametrize(("n", "rounds"), [(1, None), (100, 0)])
def test_a_plan_without_measurements_is_refused(n: int, rounds: int | None) -> None:
    with pytest.raises(ValueError, match="at least"):
        Plan.of(n, rounds)


def test_ticks_are_read_past_a_name_with_brackets() -> None:
    fields = " ".join(["S", "1", *["0"] * 9, "70", "30", *["0"] * 20])
    assert ticks_of_stat(f"17 (il-parent (x) y) {fields}") == 100


def test_processes_of_one_name_are_added_up_and_new_ones_count_from_zero() -> None:
    before = {1: ("worker", 1.0), 2: ("worker", 2.0), 3: ("gone", 5.0)}
    after = {1: ("worker", 1.5), 2: ("worker", 4.0), 4: ("broker", 0.25)}
    assert spent(before, after) == {"worker": 2.5, "broker": 0.25}
