"""The reference page names every command and every option, and the line starts without a store."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from gateway.cli.app import build
from gateway.cli.main import main
from tests.support.source import ROOT

PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")
SLOW = ("sqlalchemy", "celery", "kombu", "redis", "cryptography", "rich", "pydantic", "sqlite3")


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with its words."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, child in inner.items():
        yield from commands(child, (*path, name))


COMMANDS = list(commands(typer.main.get_command(build())))


@pytest.mark.parametrize("path", [path for path, _ in COMMANDS], ids=" ".join)
def test_every_command_is_on_the_page(path: tuple[str, ...]) -> None:
    assert " ".join(path) in PAGE


@pytest.mark.parametrize("option", sorted({name for _, c in COMMANDS for p in c.params for name in p.opts}))
def test_every_option_is_on_the_page(option: str) -> None:
    if option.startswith("--"):
        assert option in PAGE


@pytest.mark.parametrize("path", [path for path, _ in COMMANDS], ids=" ".join)
def test_every_command_has_help(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*path, "--help"]) == 0
    assert "Usage: interlock" in capsys.readouterr().out


def test_the_line_starts_without_what_it_does_not_need() -> None:
    program = "import sys; from gateway.cli.app import build; build(); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert [name for name in SLOW if name in loaded] == []


def test_the_whole_line_has_help_and_no_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert main([]) == 2
    assert main(["sessions"]) == 2
    capsys.readouterr()
