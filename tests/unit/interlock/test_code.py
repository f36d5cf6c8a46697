"""One table of codes: complete, unique, documented, and the only codes that the program uses."""

from __future__ import annotations

import ast
import copy
import pickle
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock import errors
from interlock.code import CODES, GROUPS, UnknownCodeError, code, reference_page
from interlock.errors import (
    AcceptanceUnknownError,
    AlreadyRunningError,
    ConflictError,
    InterlockError,
    LedgerUnavailableError,
    NotAcceptedError,
    NotJsonError,
    RetryLaterError,
)

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("interlock", "governance", "scheduler", "workers", "gateway")
WRITE = """python -c 'from interlock.code import reference_page; print(reference_page(), end="")'"""
# A supervisor's answers are words of its own; `workers.report` translates them into codes.
SUPERVISOR = ROOT / "workers" / "supervisor"
NAME = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
# Calls whose first argument is a code, and names that hold one.
CARRIERS = re.compile(r"(Refusal|Reason|Error|_?refus\w*|_?reason\w*)$")


def _text(node: ast.expr | None) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value):
        return node.value
    return None


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _in_call(node: ast.Call) -> Iterator[ast.expr | None]:
    yield from (word.value for word in node.keywords if word.arg in ("code", "error_code"))
    if CARRIERS.search(_called(node)):
        yield from node.args[:1]


def _in_assignment(targets: list[ast.expr], value: ast.expr | None) -> Iterator[ast.expr | None]:
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    if "code" in names:
        yield value
    if value is not None and any(name.endswith("_CODES") for name in names):
        for part in ast.walk(value):
            yield from part.values if isinstance(part, ast.Dict) else ()


def _in_defaults(node: ast.arguments) -> Iterator[ast.expr | None]:
    positional = [*node.posonlyargs, *node.args][::-1]
    pairs: list[tuple[ast.arg, ast.expr | None]] = [
        *zip(positional, node.defaults[::-1], strict=False),
        *zip(node.kwonlyargs, node.kw_defaults, strict=True),
    ]
    yield from (default for argument, default in pairs if argument.arg == "code")


def _codes_in(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        candidates: Iterator[ast.expr | None] = iter(())
        if isinstance(node, ast.Call):
            candidates = _in_call(node)
        elif isinstance(node, ast.Assign):
            candidates = _in_assignment(node.targets, node.value)
        elif isinstance(node, ast.AnnAssign):
            candidates = _in_assignment([node.target], node.value)
        elif isinstance(node, ast.arguments):
            candidates = _in_defaults(node)
        for candidate in candidates:
            text = _text(candidate)
            if text is not None and candidate is not None:
                yield text, candidate.lineno


def used_codes() -> dict[str, list[str]]:
    used: dict[str, list[str]] = {}
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            if file == ROOT / "interlock" / "code.py" or SUPERVISOR in file.parents:
                continue
            for name, line in _codes_in(ast.parse(file.read_text(encoding="utf-8"))):
                used.setdefault(name, []).append(f"{file.relative_to(ROOT)}:{line}")
    return used


def test_no_code_is_listed_twice() -> None:
    names = Counter(entry.code for group in GROUPS for entry in group.codes)
    assert [name for name, times in names.items() if times > 1] == []
    assert len(CODES) == len(names)


def test_no_two_codes_have_the_same_title() -> None:
    titles = Counter(entry.title for entry in CODES.values())
    assert [title for title, times in titles.items() if times > 1] == []


def test_every_code_has_a_cause_and_a_remedy_in_whole_sentences() -> None:
    for entry in CODES.values():
        assert NAME.fullmatch(entry.code), entry.code
        assert entry.title, entry.code
        assert not entry.title.endswith("."), entry.code
        assert entry.cause.endswith("."), entry.code
        assert entry.remedy.endswith("."), entry.code
        assert "\n" not in entry.cause + entry.remedy, entry.code


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        CODES["X"] = CODES["USAGE"]  # type: ignore[index]  # the attempt itself
    with pytest.raises(AttributeError):
        CODES["USAGE"].remedy = ""  # type: ignore[misc]  # the attempt itself


def test_an_unknown_code_is_a_fault_of_the_program() -> None:
    assert code("USAGE").code == "USAGE"
    with pytest.raises(UnknownCodeError):
        code("NO_SUCH_CODE")


def test_every_code_that_the_program_uses_is_in_the_table() -> None:
    used = used_codes()
    assert "SCHEMA_REMOTE_REF" in used, "the search finds nothing"
    unknown = {name: places for name, places in used.items() if name not in CODES}
    assert unknown == {}


def test_the_reference_page_is_written_from_the_table() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    assert page == reference_page(), f"write it anew: {WRITE}"
    assert [line[4:] for line in page.splitlines() if line.startswith("### ")] == list(CODES)


def test_an_error_is_one_line_with_its_code_and_what_to_do() -> None:
    error = InterlockError("NOT_RUNNING", "nothing\nthere", data_directory="/d")
    assert str(error) == "NOT_RUNNING: nothing there (Start it with `interlock up`.)"
    assert (error.code, error.retryable, error.data) == ("NOT_RUNNING", True, {"data_directory": "/d"})
    assert error.remedy == CODES["NOT_RUNNING"].remedy


def test_errors_carry_what_a_program_needs() -> None:
    conflict = ConflictError("invocation:1", 3, 5)
    assert (conflict.stream, conflict.expected, conflict.actual) == ("invocation:1", 3, 5)
    assert NotAcceptedError("i", "refused", code="SCHEMA_INVALID").code == "SCHEMA_INVALID"
    assert AcceptanceUnknownError("i").invocation_id == "i"
    assert AlreadyRunningError("/d", 7).pid == 7
    assert isinstance(LedgerUnavailableError("gone"), RetryLaterError)
    assert NotJsonError("JSON_SYNTAX", "expecting value", 3).offset == 3


@pytest.mark.parametrize(
    "error",
    [
        InterlockError("USAGE", "no", a=1),
        NotJsonError("JSON_NUL", "nul", 4),
        ConflictError("s", 1, None),
        NotAcceptedError("i", "m"),
        AcceptanceUnknownError("i"),
        AlreadyRunningError("/d"),
    ],
)
def test_errors_survive_the_way_between_processes(error: InterlockError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301  our own bytes
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def test_the_tree_says_what_a_caller_can_do() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    found = [kind for kind in kinds if issubclass(kind, InterlockError)]
    branches = {errors.RetryLaterError, errors.GiveUpError, errors.OursToFixError}
    assert len(found) > 10
    for kind in found:
        assert kind.__name__.endswith("Error")
        assert kind is InterlockError or sum(issubclass(kind, branch) for branch in branches) == 1
