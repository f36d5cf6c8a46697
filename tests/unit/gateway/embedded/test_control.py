"""What one line on the control socket is answered."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gateway.embedded.control import answer_line


def status(asked: Mapping[str, object]) -> Mapping[str, object]:
    return {"asked": asked["do"]}


def test_a_known_verb_is_answered() -> None:
    assert answer_line({"status": status}, b'{"do": "status"}\n') == {"ok": True, "asked": "status"}


@pytest.mark.parametrize(
    "line", [b"\n", b"status\n", b"[]\n", b'{"do": 1}\n', b'{"do": "fly"}\n', b"\xff\n", b"[" * 4000 + b"\n"]
)
def test_any_other_line_is_answered_by_its_fault(line: bytes) -> None:
    answer = answer_line({"status": status}, line)

    assert answer["ok"] is False
    assert isinstance(answer["error"], str)
