"""The scan of a workspace: what it sees, what it leaves out, and that it says so."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest

from workers.tools.snapshot import UNREAD, ScanBounds, changes_between, take_snapshot

BOUNDS = ScanBounds()


def differences(
    root: Path, bounds: ScanBounds = BOUNDS
) -> tuple[dict[bytes, tuple[str | None, str | None]], bool]:
    before = take_snapshot(root, bounds)
    return_to(root)
    changes = changes_between(before, take_snapshot(root, bounds, before), bounds)
    return {change.path: (change.before, change.after) for change in changes.changes}, changes.is_whole


def return_to(root: Path) -> None:
    """What a run does: edits, touches, removes and makes."""
    (root / "edited").write_text("new")
    os.utime(root / "touched", (1, 1))
    (root / "removed").unlink()
    (root / "folder").mkdir()
    (root / "folder" / "made").write_text("new")


def prepared(root: Path) -> Path:
    for name in ("edited", "touched", "removed", "left"):
        (root / name).write_text("old")
    return root


def sha(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def test_names_what_was_edited_removed_and_made_and_nothing_else(tmp_path: Path) -> None:
    found, is_whole = differences(prepared(tmp_path))
    assert found == {
        b"edited": (sha(b"old"), sha(b"new")),
        b"removed": (sha(b"old"), None),
        b"folder/made": (None, sha(b"new")),
    }
    assert is_whole


def test_says_when_the_bounds_were_met(tmp_path: Path) -> None:
    prepared(tmp_path)
    found, is_whole = differences(tmp_path, ScanBounds(entries=2))
    assert not is_whole
    assert len(found) <= 4


def test_content_over_the_bound_is_unread_and_still_a_change(tmp_path: Path) -> None:
    found, _ = differences(prepared(tmp_path), ScanBounds(digest_bytes=2))
    assert found[b"edited"] == (UNREAD, UNREAD)
    assert found[b"folder/made"] == (None, UNREAD)


def test_follows_no_link_and_opens_no_pipe(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("x")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(outside)
    os.mkfifo(root / "pipe")
    assert set(take_snapshot(root, BOUNDS).marks) == {b"link", b"pipe"}


def test_a_name_that_is_not_utf_8_gives_valid_text(tmp_path: Path) -> None:
    before = take_snapshot(tmp_path, BOUNDS)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff")).write_text("x")
    [change] = changes_between(before, take_snapshot(tmp_path, BOUNDS), BOUNDS).changes
    assert change.described()["path_base64"] == "Yf8="
    assert change.entity().name == "a\\xff"


def test_a_folder_that_cannot_be_entered_or_is_too_deep_is_said(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert not take_snapshot(tmp_path, ScanBounds(depth=1)).is_whole
    assert take_snapshot(tmp_path, ScanBounds(depth=2)).is_whole
    assert take_snapshot(None, BOUNDS).marks == {}


def test_a_root_that_shuts_everybody_out_is_opened_again(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "f").write_text("x")
    root.chmod(0)
    assert set(take_snapshot(root, BOUNDS).marks) == {b"f"}
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing shuts root out")
def test_what_lies_in_a_folder_that_shut_us_out_is_unread_and_not_gone(tmp_path: Path) -> None:
    (tmp_path / "h").mkdir()
    (tmp_path / "h" / "y").write_text("x")
    before = take_snapshot(tmp_path, BOUNDS)
    (tmp_path / "h").chmod(0)
    changes = changes_between(before, take_snapshot(tmp_path, BOUNDS, before), BOUNDS)
    (tmp_path / "h").chmod(0o700)
    assert [(change.path, change.after) for change in changes.changes] == [(b"h/y", UNREAD)]
    assert not changes.is_whole
