"""The file tools inside the real sandbox: what they give, and what they refuse to touch."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import pytest

from tests.integration.sandbox.pool import CANARY, Pool
from workers.supervisor.port import Failed

pytestmark = pytest.mark.timeout(60)


def test_writes_lists_and_reads(pool: Pool) -> None:
    written = pool.completed("fs.write", {"path": "a/b.txt", "content": "häuser\n", "make_folders": True})
    digest = hashlib.sha256("häuser\n".encode()).hexdigest()
    assert written.output == {
        "path": "a/b.txt", "size_bytes": 8, "sha256_before": None, "sha256_after": digest
    }  # fmt: skip
    assert [(e.name, e.before, e.after) for e in written.affected] == [("a/b.txt", None, f"sha256:{digest}")]
    again = pool.completed("fs.write", {"path": "a/b.txt", "content": "neu"}).output
    assert again["sha256_before"] == digest
    assert pool.completed("fs.read", {"path": "a/b.txt"}).output["text"] == "neu"
    listed = pool.completed("fs.list", {"recursive": True}).output
    assert {"a", "a/b.txt"} <= {entry["name"] for entry in listed["entries"]}


def test_create_refuses_an_existing_file(pool: Pool) -> None:
    pool.completed("fs.write", {"path": "once", "content": "1", "mode": "create"})
    failed = pool.failed("fs.write", {"path": "once", "content": "2", "mode": "create"})
    assert (failed.code, failed.began) == ("TOOL_FAILED", False)
    assert pool.completed("fs.read", {"path": "once"}).output["text"] == "1"


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../x", "a/../b", "a//b", "./a", "a/", "", "a\0b", "a" * 300]
)
@pytest.mark.parametrize("tool", ["fs.read", "fs.write", "fs.list"])
def test_refuses_a_path_that_is_none(pool: Pool, tool: str, path: str) -> None:
    failed = pool.failed(tool, {"path": path, "content": "x"})
    assert (failed.code, failed.began) == ("PATH_INVALID", False)


def test_follows_no_link_that_a_tool_planted(pool: Pool) -> None:
    pool.shell(
        "ln -s /etc leads-out; ln -s /etc/passwd leads-to-file; ln -s /nowhere dangling; mkdir -p real"
    )
    attempts: list[tuple[str, dict[str, Any]]] = [
        ("fs.read", {"path": "leads-out/passwd"}),
        ("fs.read", {"path": "leads-to-file"}),
        ("fs.list", {"path": "leads-out"}),
        ("fs.write", {"path": "leads-out/x", "content": CANARY}),
        ("fs.write", {"path": "leads-to-file", "content": CANARY}),
        ("fs.write", {"path": "dangling", "content": CANARY}),
    ]
    for tool, arguments in attempts:
        failed = pool.failed(tool, arguments)
        assert (failed.code, failed.began) == ("PATH_INVALID", False), (tool, arguments)
    kinds = {e["name"]: e["kind"] for e in pool.completed("fs.list", {}).output["entries"]}
    assert (kinds["leads-out"], kinds["real"]) == ("link", "folder")


def test_refuses_special_and_hard_linked_files(pool: Pool) -> None:
    pool.shell("mkfifo pipe; echo x > one; ln one two; truncate -s 100M huge")
    for path in ("pipe", "one", "huge"):
        failed = pool.failed("fs.read", {"path": path})
        assert (failed.code, failed.began) == ("TOOL_FAILED", False), path
    assert pool.failed("fs.write", {"path": "two", "content": "y"}).code == "TOOL_FAILED"
    pool.shell("rm pipe one two huge")


def test_cannot_write_without_the_capability(pool: Pool) -> None:
    failed = pool.failed("fs.write", {"path": "x", "content": "y"}, capabilities=frozenset(("FILE_READ",)))
    assert (failed.code, failed.began) == ("TOOL_FAILED", False)


def test_reads_a_part_and_says_so(pool: Pool) -> None:
    pool.completed("fs.write", {"path": "long", "content": "0123456789"})
    read = pool.completed("fs.read", {"path": "long", "offset_bytes": 2, "limit_bytes": 3})
    assert (read.output["text"], read.output["size_bytes"], read.truncated) == ("234", 10, ("output",))


def test_names_what_a_program_changed(pool: Pool) -> None:
    pool.shell("echo old > kept; echo old > edited; echo old > removed", session_id="changes")
    script = "echo new > edited; rm removed; echo new > made; touch kept; ln -s made link"
    output = pool.shell(script, session_id="changes")
    changed = {item["path"]: (item["before"], item["after"]) for item in output["changed_files"]}
    assert set(changed) == {"edited", "removed", "made", "link"}
    assert changed["removed"][1] is changed["made"][0] is None
    assert changed["edited"][1] == changed["made"][1] == "sha256:" + hashlib.sha256(b"new\n").hexdigest()
    assert output["changed_files_truncated"] is False


def test_a_program_that_shuts_everybody_out_of_the_workspace_shuts_out_nobody(pool: Pool) -> None:
    output = pool.shell("echo x > hidden; chmod 000 /work; echo done", session_id="shut")
    assert output["stdout"]["text"] == "done\n"
    assert [item["path"] for item in output["changed_files"]] == ["hidden"]
    assert pool.shell("cat hidden", session_id="shut")["stdout"]["text"] == "x\n"


def test_the_scan_follows_no_link_out_of_the_workspace(pool: Pool) -> None:
    pool.shell(f"ln -s {pool.canary.parent} out; echo x > inside", session_id="links")
    os.utime(pool.canary)
    output = pool.shell("echo y > inside", session_id="links")
    assert [item["path"] for item in output["changed_files"]] == ["inside"]


def test_a_full_scratch_folder_is_the_tool_s_own_trouble(pool: Pool) -> None:
    output = pool.shell("head -c 400M /dev/zero > /dev/shm/big")
    assert output["exit_code"] != 0
    assert "No space left" in output["stderr"]["text"]


def test_http_fetch_has_no_host_unless_the_pool_lists_one(pool: Pool) -> None:
    outcome = pool.execute("http.fetch", {"url": "http://example.org/"})
    assert isinstance(outcome, Failed)
    assert (outcome.code, outcome.began) == ("HOST_NOT_ALLOWED", False)
