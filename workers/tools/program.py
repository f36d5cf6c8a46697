"""The file tools' program: runs inside the sandbox, one request on stdin, one JSON answer on stdout.

Standard library only, and imports nothing of ours, for its text alone goes in. Every path is walked from
the workspace's descriptor, one component at a time, following no link; a name is never checked and then
opened by name again.
"""

from __future__ import annotations

import binascii
import errno
import hashlib
import json
import os
import stat
import sys

# Importing `typing` would take longer than all that this program does.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, NoReturn

FILE_BYTES_MAX = 64 * 1024 * 1024
NAMES_BYTES_MAX = 1024 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK_BYTES = 256 * 1024
_KINDS: Mapping[int, str] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


class RefusedError(Exception):
    """A request that is not carried out: nothing was changed. `code` is stable."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def list_folder(root: int, path: str, is_recursive: bool, limit: int) -> dict[str, Any]:
    """The entries of a folder by name, at most `limit` and a megabyte of names; links are never followed."""
    folder = _folder(root, _components(path))
    found = [*_bounded(_entries(folder, b"", is_recursive), limit + 1)]
    limit = _fitting(found, limit)
    entries = sorted(found[:limit], key=lambda entry: entry[0])
    return {
        "path": path,
        "entries": [_entry(name, status) for name, status in entries],
        "truncated": len(found) > limit,
    }


def read_file(root: int, path: str, offset_bytes: int, limit_bytes: int) -> dict[str, Any]:
    """A part of a regular file, and size and digest of the whole."""
    *folders, name = _components(path)
    fd = _regular(_folder(root, folders), name, path)
    size_bytes = os.fstat(fd).st_size
    digest = _digest(fd)
    content = os.pread(fd, limit_bytes, offset_bytes)
    is_cut = offset_bytes + len(content) < size_bytes
    return {
        "path": path,
        **_text_or_bytes(content, is_cut),
        "offset_bytes": offset_bytes,
        "size_bytes": size_bytes,
        "sha256": digest,
        "truncated": is_cut,
    }


def write_file(root: int, path: str, mode: str, content: bytes, with_folders: bool) -> dict[str, Any]:
    """Puts `content` at `path` at once: the file is the old one or the whole new one, never between."""
    *folders, name = _components(path)
    folder = _folder(root, folders, with_folders)
    before, permissions = _existing(folder, name, path)
    if before is not None and mode == "create":
        raise RefusedError("TOOL_FAILED", f"{path!r} exists")
    partial = f".interlock-{os.urandom(8).hex()}.partial"
    try:
        _write_new(folder, partial, content, permissions)
        _place(folder, partial, name, mode, path)
    except BaseException:
        _remove(folder, partial)
        raise
    os.fsync(folder)
    return {
        "path": path,
        "size_bytes": len(content),
        "sha256_before": before,
        "sha256_after": hashlib.sha256(content).hexdigest(),
    }


def carry_out(root: int, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request: `{"output": …}` or `{"error": {"code", "message"}}`."""
    arguments = request["arguments"]
    try:
        return {"output": _dispatch(root, request["tool"], arguments)}
    except RefusedError as refusal:
        return {"error": {"code": refusal.code, "message": str(refusal)}}
    except OSError as error:
        return {"error": {"code": _code_of(error), "message": f"{arguments.get('path')}: {error.strerror}"}}


def _dispatch(root: int, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    path = arguments.get("path", ".")
    if tool == "fs.list":
        return list_folder(root, path, arguments.get("recursive", False), arguments.get("limit", 1_000))
    if tool == "fs.read":
        return read_file(root, path, arguments.get("offset_bytes", 0), arguments.get("limit_bytes", 262_144))
    if tool == "fs.write":
        mode, with_folders = arguments.get("mode", "overwrite"), arguments.get("make_folders", False)
        return write_file(root, path, mode, _content(arguments), with_folders)
    raise RefusedError("TOOL_UNAVAILABLE", f"no file tool {tool!r}")


def _content(arguments: dict[str, Any]) -> bytes:
    if arguments.get("encoding", "utf-8") == "utf-8":
        return str(arguments["content"]).encode()
    try:
        return binascii.a2b_base64(arguments["content"], strict_mode=True)
    except ValueError as error:
        raise RefusedError("SCHEMA_INVALID", "content is not base64") from error


def _components(path: str) -> list[str]:
    return [] if path == "." else path.split("/")


def _folder(root: int, components: list[str], is_made: bool = False) -> int:
    folder = os.dup(root)
    for name in components:
        if name in ("", ".", ".."):
            raise RefusedError("PATH_INVALID", f"component {name!r}")
        if is_made:
            _make(folder, name)
        parent, folder = folder, os.open(name, _FOLDER, dir_fd=folder)
        os.close(parent)
    return folder


def _make(parent: int, name: str) -> None:
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        return


def _regular(folder: int, name: str, path: str) -> int:
    """A descriptor of a plain file: not a link, not linked from elsewhere, not special, not huge."""
    if name in ("", ".", ".."):
        raise RefusedError("PATH_INVALID", f"{path!r} names no file")
    _refuse_unless_plain(os.stat(name, dir_fd=folder, follow_symlinks=False), path)
    fd = os.open(name, _FILE, dir_fd=folder)
    # Judged again on what was really opened: the name may have been given to something else.
    _refuse_unless_plain(os.fstat(fd), path)
    return fd


def _refuse_unless_plain(status: os.stat_result, path: str) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise RefusedError("PATH_INVALID", f"{path!r} is a link")
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError("TOOL_FAILED", f"{path!r} is no regular file")
    if status.st_nlink > 1:
        raise RefusedError("TOOL_FAILED", f"{path!r} has {status.st_nlink} names")
    if status.st_size > FILE_BYTES_MAX:
        raise RefusedError("TOOL_FAILED", f"{path!r} has {status.st_size} bytes")


def _existing(folder: int, name: str, path: str) -> tuple[str | None, int]:
    try:
        fd = _regular(folder, name, path)
    except FileNotFoundError:
        return None, 0o644
    return _digest(fd), stat.S_IMODE(os.fstat(fd).st_mode) & 0o777


def _write_new(folder: int, name: str, content: bytes, permissions: int) -> None:
    fd = os.open(name, _NEW, 0o600, dir_fd=folder)
    with open(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fchmod(fd, permissions)
        os.fsync(fd)


def _place(folder: int, partial: str, name: str, mode: str, path: str) -> None:
    if mode != "create":
        os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
        return
    try:
        # Unlike rename, link never replaces what came in between.
        os.link(partial, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError as error:
        raise RefusedError("TOOL_FAILED", f"{path!r} exists") from error
    os.unlink(partial, dir_fd=folder)


def _remove(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return


def _entries(folder: int, prefix: bytes, is_recursive: bool) -> Iterator[tuple[bytes, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = prefix + os.fsencode(entry.name)
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # gone since it was named, as the partial file of a write is
            yield name, status
            if is_recursive and stat.S_ISDIR(status.st_mode):
                yield from _below(folder, entry.name, name + b"/")


def _below(folder: int, entry: str, prefix: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
    """What one folder of another holds; nothing where it is gone by now."""
    try:
        below = os.open(entry, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        return
    try:
        yield from _entries(below, prefix, True)
    finally:
        os.close(below)


def _bounded(entries: Iterator[Any], limit: int) -> Iterator[Any]:
    for _, entry in zip(range(limit), entries, strict=False):
        yield entry


def _fitting(found: list[tuple[bytes, os.stat_result]], limit: int) -> int:
    """How many of the first entries have names that fit into an answer together."""
    room_bytes = NAMES_BYTES_MAX
    for place, (name, _) in enumerate(found[:limit]):
        room_bytes -= len(name)
        if room_bytes < 0:
            return place
    return limit


def _entry(name: bytes, status: os.stat_result) -> dict[str, Any]:
    return {
        **_name(name),
        "kind": _KINDS.get(stat.S_IFMT(status.st_mode), "special"),
        "size_bytes": status.st_size,
        "modified_ms": status.st_mtime_ns // 1_000_000,
    }


def _name(name: bytes) -> dict[str, str]:
    try:
        return {"name": name.decode()}
    except UnicodeDecodeError:
        return {"name": name.decode(errors="replace"), "name_base64": _base64(name)}


def _text_or_bytes(content: bytes, is_cut: bool) -> dict[str, str]:
    if b"\0" in content:  # no text that every store can hold
        return {"encoding": "base64", "bytes": _base64(content)}
    try:
        return {"encoding": "utf-8", "text": content.decode()}
    except UnicodeDecodeError as error:
        if is_cut and error.end == len(content) and error.reason == "unexpected end of data":
            return {"encoding": "utf-8", "text": content[: error.start].decode()}
        return {"encoding": "base64", "bytes": _base64(content)}


def _base64(content: bytes) -> str:
    return binascii.b2a_base64(content, newline=False).decode()


def _digest(fd: int) -> str:
    digest, offset_bytes = hashlib.sha256(), 0
    while offset_bytes < FILE_BYTES_MAX and (chunk := os.pread(fd, _CHUNK_BYTES, offset_bytes)):
        digest.update(chunk)
        offset_bytes += len(chunk)
    return digest.hexdigest()


def _code_of(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "PATH_INVALID"  # A component is a link, or no folder.
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "RESOURCE_LIMIT"
    return "TOOL_FAILED"


def main() -> NoReturn:
    """Reads one request, answers it, exits 0."""
    root = os.open("/work", _FOLDER)
    answer = carry_out(root, json.load(sys.stdin.buffer))
    sys.stdout.buffer.write(json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode())
    sys.stdout.buffer.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
