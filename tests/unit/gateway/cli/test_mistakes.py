"""Plain mistakes get one clear code each, and never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cli.main import main
from gateway.cli.name import as_called, command_name
from gateway.cli.visible import coded

LONG = "x" * 300
DEEP = "/".join(["d" * 60] * 10)
SUBMIT = ("submit", "echo", "--args", "{}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the mistakes are made: a file, and nothing that is a system's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("line", "status", "code"),
    [
        (("show", "x", "--data", "file"), 1, "NOT_FOUND"),
        (("show", "x", "--data", "file/below"), 1, "NOT_FOUND"),
        (("show", "x", "--data", LONG), 1, "NOT_FOUND"),
        (("show", "x", "--data", DEEP), 1, "CONFIG_INVALID"),
        (("show", "x", "--data", ""), 2, "USAGE"),
        (("show", "x", "--data", "empty"), 1, "NOT_FOUND"),
        (("doctor", "--data", LONG), 1, "FILE_UNUSABLE"),
        (("tools", "check", "."), 1, "FILE_UNUSABLE"),
        (("tools", "check", LONG), 1, "FILE_UNUSABLE"),
        (("submit", "--batch", "."), 1, "FILE_UNUSABLE"),
        (("submit", "--batch", LONG), 1, "FILE_UNUSABLE"),
        (("verify", "--anchor", LONG), 1, "FILE_UNUSABLE"),
        ((*SUBMIT, "--mode", "foo"), 2, "USAGE"),
        ((*SUBMIT, "--priority", "12"), 2, "USAGE"),
        (("demo", "--data", "file"), 1, "CONFIG_INVALID"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_mistake_has_one_code(
    line: tuple[str, ...], status: int, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line) == status
    said = capsys.readouterr().err
    assert said.startswith(f"{code}: ")
    assert said.count("\n") == 1


@pytest.mark.usefixtures("folder")
def test_a_directory_that_is_not_there_says_how_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "x", "--data", "none"]) == 1
    assert "--data DIR or INTERLOCK_DATA names it" in capsys.readouterr().err


def test_a_code_is_said_once() -> None:
    assert coded("TOOL_FAILED", "TOOL_FAILED: 'a' exists") == "TOOL_FAILED: 'a' exists"
    assert coded("TOOL_FAILED", "'a' exists") == "TOOL_FAILED: 'a' exists"
    assert coded(None, "only words") == "only words"


def test_commands_are_called_as_this_one_was(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "Start it with `interlock up`, says interlock."
    monkeypatch.delenv("INTERLOCK_COMMAND", raising=False)
    assert as_called(said) == said
    monkeypatch.setenv("INTERLOCK_COMMAND", "./run")
    assert as_called(said) == "Start it with `./run up`, says interlock."
    monkeypatch.setenv("INTERLOCK_COMMAND", "\x1b[31m rm -rf")
    assert command_name() == "interlock"


def test_it_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    from interlock import __version__

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"interlock {__version__}\n"


def test_run_names_every_command() -> None:
    from typer.main import get_command

    from gateway.cli.app import build
    from tests.support.source import ROOT

    usage = (ROOT / "run").read_text("utf-8").split('"""')[3]
    commands = getattr(get_command(build()), "commands", {})
    assert [name for name in commands if f" {name}" not in usage] == []
