"""The rules of the house that a reader can check by counting. Each names the files that break it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.support.source import PACKAGES, ROOT, name, parse, python_files, text_files

LINES_MAX = 400
# What may be longer, and why. Nothing else is.
LONGER = {
    "interlock/code.py": "one table: every stable code with its cause and remedy",
    "interlock/event.py": "one table: every event with a note on each field",
}
WORDS_NOT_OURS = {"task", "message", "job", "manager", "handler", "helper", "utils", "util", "common"}
READ_ONLY = re.compile(r"^(Final\[)?(Mapping|Sequence|Set|AbstractSet|Collection)\b")
MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
# Written in two halves, so that this file does not hold what it looks for.
ADDRESSES = re.compile("pypi" + r"\.org|" + "python" + "hosted|" + "npm" + r"js\.org|" + "deb" + r"ian\.org")
MACHINE_PATHS = re.compile(r"(?<![\w.])/wo" + "rk/|/ro" + r"ot/\.|" + "/opt/py" + "pi")


def breaking(paths: list[Path], pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name(path)}:{number}"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_file_is_longer_than_can_be_read_at_once() -> None:
    lengths = {name(path): len(path.read_text("utf-8").splitlines()) for path in python_files(*PACKAGES)}
    assert {path: lines for path, lines in lengths.items() if lines > LINES_MAX and path not in LONGER} == {}


def test_every_module_says_what_it_does() -> None:
    silent = [path for path in python_files(*PACKAGES, "tests") if not ast.get_docstring(parse(path))]
    assert list(map(name, silent)) == []


def test_every_folder_of_a_package_is_a_package() -> None:
    folders = {path.parent for path in python_files(*PACKAGES)}
    assert sorted(name(folder) for folder in folders if not (folder / "__init__.py").exists()) == []


def test_no_folder_of_tests_is_a_package() -> None:
    """Such a package would stand in for the real one of the same name."""
    assert [name(path) for path in python_files("tests") if path.name == "__init__.py"] == []


def test_no_module_is_named_for_what_is_not_ours() -> None:
    paths = python_files(*PACKAGES)
    assert [name(path) for path in paths if WORDS_NOT_OURS & set(path.stem.split("_"))] == []


def test_no_module_holds_state_that_can_change() -> None:
    """A table is a tuple, a frozenset, or annotated as a Mapping: mypy then guards it."""
    found = []
    for path in python_files(*PACKAGES):
        for node in parse(path).body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, MUTABLE):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                kind = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
                if ast.unparse(targets[0]) != "__all__" and not READ_ONLY.match(kind):
                    found.append(f"{name(path)}:{node.lineno} {ast.unparse(targets[0])}")
    assert found == []


def test_no_function_changes_a_global() -> None:
    nodes = [(path, node) for path in python_files(*PACKAGES) for node in ast.walk(parse(path))]
    assert [f"{name(path)}:{node.lineno}" for path, node in nodes if isinstance(node, ast.Global)] == []


def test_no_test_sleeps() -> None:
    sleep = re.compile(r"\b(time|asyncio)\.sleep\(|from (time|asyncio) import .*\bsleep\b")
    assert breaking([path for path in python_files("tests") if path != Path(__file__)], sleep) == []


def test_every_opt_out_says_why_on_its_line() -> None:
    bare = re.compile(r"# (noqa(: ?[A-Z0-9, ]+)?|type: ignore(\[[\w, -]+\])?|pragma: no cover)\s*$")
    assert breaking([*python_files(*PACKAGES, "tests"), ROOT / "run"], bare) == []


def test_no_file_names_a_registry() -> None:
    assert breaking(list(text_files()), ADDRESSES) == []


def test_no_file_names_a_folder_of_one_machine() -> None:
    assert breaking(list(text_files()), MACHINE_PATHS) == []
