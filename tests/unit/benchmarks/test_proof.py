"""The frame of the long proofs: what `./run prove` lists without importing, and what a run prints."""

from __future__ import annotations

import json
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.proof import Outline, proving
from tests.support.source import ROOT

OUTLINE = Outline("x", "It holds.", count="PROVE_X", usual=100, minutes=1.0, minutes_each=0.1)
SOURCE = '''"""A proof of something."""

from tests.support.proof import Outline

PROOF = Outline(
    name="x", says="It holds.", count="PROVE_X", usual=1_00, minutes=1.0, minutes_each=0.1
)
'''


@pytest.fixture(scope="module")
def run() -> ModuleType:
    loader = SourceFileLoader("run_script_of_proofs", str(ROOT / "run"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


def test_a_proof_is_listed_with_its_sentence_and_minutes(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_x.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "test_y.py").write_text('"""Only a docstring.\n\nMore."""\n', encoding="utf-8")
    monkeypatch.delenv("PROVE_X", raising=False)
    proofs = run.read_proofs(tmp_path)
    assert run.told(proofs["x"]) == "It holds. About 11 minutes (PROVE_X=100)."
    assert run.told(proofs["y"]) == "Only a docstring."
    monkeypatch.setenv("PROVE_X", "10")
    assert run.told(proofs["x"]) == "It holds. About 2 minutes (PROVE_X=10)."


def test_every_proof_there_is_can_be_listed(run: ModuleType) -> None:
    proofs = run.read_proofs(ROOT / "tests" / "prove")
    assert {"crashes", "growth"} <= proofs.keys()
    assert all(run.told(outline) for outline in proofs.values())


def test_a_run_ends_with_one_line_of_figures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVE_X", "3")
    with proving(OUTLINE, seed=7) as course:
        course.figure("kills", 12)
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["proof"], last["held"], last["seed"], last["wanted"]) == ("x", True, 7, 3)
    assert last["kills"] == 12


def test_a_run_that_fails_says_so_in_its_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), proving(OUTLINE, seed=7):
        _ = 1 / 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["held"] is False


@pytest.mark.parametrize("count", ["0", "many", "-1"])
def test_a_count_that_is_none_is_refused(count: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVE_X", count)
    with pytest.raises(ValueError, match="PROVE_X"):
        _ = OUTLINE.wanted
