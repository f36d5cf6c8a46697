"""What the sandbox holds follows from the capabilities; how bubblewrap is told so."""

from __future__ import annotations

from pathlib import Path

import pytest

from workers.adapters.bubblewrap import command_line
from workers.supervisor.port import Call, SandboxReport
from workers.supervisor.profile import Limits, Profile, Sandbox, profile_of

SANDBOX = Sandbox("/usr/bin/bwrap", "/usr/bin/python3", None, True, SandboxReport("N"))
WORKSPACE = Path("/somewhere/session")


def call(*capabilities: str) -> Call:
    return Call("i", "shell.run", {}, "s", WORKSPACE, frozenset(capabilities), 1, 2, 3)


@pytest.mark.parametrize(
    ("capabilities", "workspace", "is_writable"),
    [
        ((), None, False),
        (("FILE_WRITE", "SHELL_EXEC", "PROCESS_SPAWN", "NETWORK_ACCESS"), None, False),
        (("FILE_READ",), WORKSPACE, False),
        (("FILE_READ", "FILE_WRITE"), WORKSPACE, True),
    ],
)
def test_the_workspace_follows_from_the_capabilities(
    capabilities: tuple[str, ...], workspace: Path | None, is_writable: bool
) -> None:
    profile = profile_of(call(*capabilities), "", Limits())
    assert (profile.workspace, profile.is_writable) == (workspace, is_writable)


def line(profile: Profile) -> str:
    return " ".join(command_line(SANDBOX, profile, {"/etc/passwd": 5}, 6))


def test_the_launcher_is_told_the_profile() -> None:
    writable = line(Profile(WORKSPACE, True, "/work", Limits()))
    assert f" --bind {WORKSPACE} /work --chdir /work" in writable
    assert f" --ro-bind {WORKSPACE} /work" in line(Profile(WORKSPACE, False, "/work", Limits()))
    absent = line(Profile(None, False, "/tmp", Limits()))
    assert str(WORKSPACE) not in absent
    assert absent.endswith("--chdir /tmp")


def test_the_launcher_is_told_to_let_nothing_through() -> None:
    said = line(Profile(None, False, "/tmp", Limits()))
    for words in (
        "--unshare-user --unshare-all --disable-userns",
        "--uid 65534 --gid 65534",
        "--die-with-parent --new-session --cap-drop ALL",
        "--clearenv",
        "--proc /proc --ro-bind /proc/sys /proc/sys",
        "--remount-ro /dev",
        "--remount-ro /",
    ):
        assert words in said
    assert "--share-net" not in said
    assert "--ro-bind / " not in said


def test_an_interpreter_of_ours_is_bound_and_found_by_name() -> None:
    lent = Sandbox("/usr/bin/bwrap", "/opt/p/bin/python3", "/opt/p", False, SandboxReport("N"))
    said = " ".join(command_line(lent, Profile(None, False, "/tmp", Limits()), {}, 6))
    assert "--ro-bind /opt/p /opt/p" in said
    assert "--setenv PATH /usr/local/bin:/usr/bin:/bin:/opt/p/bin" in said
    assert "--disable-userns" not in said
