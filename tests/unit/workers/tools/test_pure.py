"""The tools that run inside the pool."""

from __future__ import annotations

import pytest

from workers.supervisor.port import Completed, Failed
from workers.tools.path import refused_path
from workers.tools.pure import run_pure


@pytest.mark.parametrize("value", [None, 1, "ä", [1, {"a": None}], {"b": []}])
def test_echo_returns_its_value(value: object) -> None:
    assert run_pure("echo", {"value": value}) == Completed(0, {"value": value})


def test_nothing_outside_the_closed_list_runs() -> None:
    outcome = run_pure("fs.read", {"path": "x"})
    assert isinstance(outcome, Failed)
    assert (outcome.code, outcome.began) == ("TOOL_UNAVAILABLE", False)


@pytest.mark.parametrize("path", [".", "a", "a/b", "a b", ".git/config", "..a", "ä", "a\\b", "%2e%2e", "a."])
def test_a_plain_path_is_one(path: str) -> None:
    assert refused_path(path) is None


@pytest.mark.parametrize(
    "path", ["", "/", "/a", "..", "a/..", "a/./b", "a//b", "a/", "a\0", "x" * 256, "a/" * 3000, "\ud800"]
)
def test_any_other_path_is_refused(path: str) -> None:
    assert refused_path(path)
