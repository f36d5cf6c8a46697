"""The file tools' program on a folder of the test's own, without a sandbox around it."""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from workers.tools import program


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Callable[..., dict[str, Any]]]:
    root = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)

    def asked(tool: str, **arguments: Any) -> dict[str, Any]:
        return program.carry_out(root, {"tool": tool, "arguments": arguments})

    yield asked
    os.close(root)


def test_base64_carries_any_bytes(ask: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    content = base64.b64encode(b"\xff\0").decode()
    assert ask("fs.write", path="f", content=content, encoding="base64")["output"]["size_bytes"] == 2
    assert (tmp_path / "f").read_bytes() == b"\xff\0"
    assert ask("fs.read", path="f")["output"]["bytes"] == content
    refused = ask("fs.write", path="f", content="no base64!", encoding="base64")
    assert refused["error"]["code"] == "SCHEMA_INVALID"


def test_a_write_keeps_permissions_and_leaves_no_partial_file(
    ask: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "script").write_text("old")
    (tmp_path / "script").chmod(0o755)
    ask("fs.write", path="script", content="new")
    assert (tmp_path / "script").stat().st_mode & 0o777 == 0o755
    (tmp_path / "folder").mkdir()
    assert ask("fs.write", path="folder", content="x")["error"]["code"] == "TOOL_FAILED"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "script"]


@pytest.mark.parametrize("mode", ["create", "overwrite"])
def test_readers_never_see_a_part(ask: Callable[..., dict[str, Any]], tmp_path: Path, mode: str) -> None:
    path, seen, is_over = tmp_path / "f", set(), threading.Event()

    def read() -> None:
        while not is_over.is_set():
            if path.exists():
                seen.add(len(path.read_bytes()))

    reader = threading.Thread(target=read)
    reader.start()
    for size in range(1, 30):
        ask("fs.write", path="f", content="x" * size * 10_000, mode=mode)
    is_over.set()
    reader.join()
    assert {size % 10_000 for size in seen} <= {0}
    assert 0 not in seen


def test_only_one_of_many_creates(ask: Callable[..., dict[str, Any]]) -> None:
    answers: list[dict[str, Any]] = []
    threads = [
        threading.Thread(
            target=lambda word=word: answers.append(ask("fs.write", path="f", content=word, mode="create"))
        )
        for word in "abcdefgh"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum("output" in answer for answer in answers) == 1
    assert {answer["error"]["code"] for answer in answers if "error" in answer} == {"TOOL_FAILED"}


def test_a_swap_of_folder_and_link_is_never_followed(
    ask: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """The naive reader, which checks a name and then opens it, loses this race; that shows it is run."""
    outside = tmp_path.parent / "outside-of-it"
    outside.mkdir()
    (outside / "f").write_text("outside")
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "f").write_text("inside")
    (tmp_path / "link").symlink_to(outside)
    is_over = threading.Event()

    def swap() -> None:
        while not is_over.is_set():
            os.rename(tmp_path / "real", tmp_path / "d")
            os.rename(tmp_path / "d", tmp_path / "real")
            os.rename(tmp_path / "link", tmp_path / "d")
            os.rename(tmp_path / "d", tmp_path / "link")

    swapper = threading.Thread(target=swap)
    swapper.start()
    texts, naive = set(), 0
    for _ in range(3_000):
        texts.add(ask("fs.read", path="d/f").get("output", {}).get("text"))
        naive += naive_read(tmp_path) == "outside"
    is_over.set()
    swapper.join()
    print("the naive reader was led outside", naive, "times")
    assert "outside" not in texts


def naive_read(root: Path) -> str | None:
    path = root / "d" / "f"
    try:
        if not path.resolve().is_relative_to(root):
            return None
        return path.read_text()
    except OSError:
        return None


def test_names_that_are_not_utf_8_are_shown_and_exact(
    ask: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff"))).write_text("x")
    [entry] = ask("fs.list", path=".")["output"]["entries"]
    assert (entry["name"], base64.b64decode(entry["name_base64"])) == ("a\ufffd", b"a\xff")


def test_a_listing_is_bounded_and_says_so(ask: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "f").touch()
    whole = ask("fs.list", recursive=True)["output"]
    assert (len(whole["entries"]), whole["truncated"]) == (10, False)
    assert [entry["name"] for entry in whole["entries"]][:3] == ["0", "0/f", "1"]
    part = ask("fs.list", recursive=True, limit=4)["output"]
    assert (len(part["entries"]), part["truncated"]) == (4, True)


def test_names_that_do_not_fit_into_an_answer_are_left_out(
    ask: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        (tmp_path / f"{number:0100}").touch()
    monkeypatch.setattr(program, "NAMES_BYTES_MAX", 250)
    listed = ask("fs.list")["output"]
    assert (len(listed["entries"]), listed["truncated"]) == (2, True)


def test_what_goes_while_a_folder_is_listed_is_left_out(tmp_path: Path) -> None:
    """The partial file of a write beside it, say."""
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    entries = program._entries(folder, b"", False)
    first, _ = next(entries)
    for path in tmp_path.iterdir():
        path.unlink()
    assert [first, *(name for name, _ in entries)] == [first]
    os.close(folder)


def test_a_folder_that_goes_before_it_is_opened_is_empty(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    entries = program._entries(folder, b"", True)
    assert next(entries)[0] == b"below"
    (tmp_path / "below").rmdir()
    assert [*entries] == []
    os.close(folder)


def test_a_deep_path_uses_few_descriptors(ask: Callable[..., dict[str, Any]]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    assert "output" in ask("fs.write", path="/".join("a" * 500), content="x", make_folders=True)
    assert len(os.listdir("/proc/self/fd")) - before < 8
