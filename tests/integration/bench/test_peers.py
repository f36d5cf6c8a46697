"""Peers are never needed: what is not installed is named with its command, and no peer imports ours."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from benchmarks.peer import INSTALL, PYTHON, check
from tests.support.source import ROOT

FRAME = "benchmarks.peers.frame"


@pytest.mark.parametrize("name", sorted(INSTALL))
def test_a_peer_says_what_it_is_or_how_to_install_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PYTHON, raising=False)
    said = check(name)
    if "missing" in said:
        assert INSTALL[name] in said["missing"]
    else:
        assert all(said[word] for word in ("version", "settings", "durability"))


def test_an_interpreter_that_is_none_is_as_good_as_a_missing_peer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(PYTHON, str(tmp_path / "no-python"))
    assert INSTALL["huey"] in check("huey")["missing"]


def test_peers_need_the_standard_library_only_before_they_run() -> None:
    for path in sorted((ROOT / "benchmarks" / "peers").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        tops = {node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)}
        tops |= {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
        others = {top for top in tops if top.split(".")[0] not in sys.stdlib_module_names}
        assert others <= {FRAME}, path.name
