"""A look at the system as it is shown: nothing acts on a terminal or is wider; and counting is rare."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from rich.console import Console

from gateway.cli import board
from gateway.glance import Counting, Glance, Parked, PoolGlance, Rates, RelayGlance
from governance.adapters.postgres_ledger.horizon import Horizon
from governance.ledger import Head, LedgerView
from interlock.clock import SECOND_US
from interlock.phase import Phase

NOW_US = 1_800_000_000 * SECOND_US
ID = "01a22ec5-8f9b-7559-8f89-2105b56fdf76"
HOSTILE = "s\x1b[2J\u202e[bold red]evil[/]\r\n"


def head(phase: str, **more: Any) -> Head:
    fields: dict[str, Any] = {"tool": "shell.run", "session": "s", "at_us": NOW_US - 90 * SECOND_US}
    return Head("invocation", ID, phase=phase, **(fields | more))


LOOK = Glance(
    at_us=NOW_US,
    seq=120,
    phases={phase.value: 0 for phase in Phase} | {"running": 2, "done": 90_000},
    rates=Rates(1234.56, 1200.0),
    pools=[PoolGlance("pure", 3, 12.5), PoolGlance("shell", 0, None)],
    running=[head("running", claimed_us=NOW_US - 5 * SECOND_US, session=HOSTILE)],
    parked=[Parked(head("awaiting_approval"), NOW_US + 125 * SECOND_US)],
    unknown=[head("reconciliation_required", tool=HOSTILE)],
    projected=117,
    stopped=1,
    relay=RelayGlance("behind", 119),
)


def shown(look: Glance, width: int = 120, session: str | None = None) -> list[str]:
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None, force_terminal=True, markup=False)
    console.print(board.tables(look, session, width))
    return stream.getvalue().splitlines()


def test_the_tables_tell_everything() -> None:
    text = "\n".join(shown(LOOK, session="mine"))
    for part in ("event 120  session mine", "projector 3 behind, 1 sessions stopped, relay 1 behind",
                 "1,234.6 accepted and 1,200.0 finished a second", "90000", "12 s", "5 s", "2 min 5 s",
                 "outcome unknown", "waits for an approval", "1 min 30 s"):  # fmt: skip
        assert part in text


@pytest.mark.parametrize("width", [20, 40, 120])
def test_no_line_is_wider_than_the_terminal_and_nothing_acts_on_it(width: int) -> None:
    lines = shown(LOOK, width, HOSTILE)
    assert max(map(len, lines)) <= width
    text = "".join(line.replace("\x1b[1m", "").replace("\x1b[0m", "") for line in lines)
    assert [character for character in ("\x1b", "\u202e", "\r") if character in text] == []


def test_a_narrow_terminal_shows_names_and_moments_in_place_of_ids() -> None:
    narrow, wide = "\n".join(shown(LOOK, 60)), "\n".join(shown(LOOK, 120))
    assert ID in wide
    assert ID[:8] not in narrow
    assert "2 min 5 s" in narrow


def test_late_numbers_are_said_with_what_holds_them() -> None:
    assert "NUMBERS" not in board.lags(replace(LOOK, numbers=Horizon(1.0, True)))
    late = replace(LOOK, numbers=Horizon(65.25, True, 4711))
    assert "NUMBERS ARE LATE by 1 min 5 s (held by an open transaction" in board.line(late)
    assert board.document(late, None, "default")["numbers"] == {"waiting_s": 65.25, "held": True}
    assert board.document(LOOK, None, "default")["numbers"] is None


def test_markup_in_a_name_is_a_name() -> None:
    assert "[bold red]evil[/]" in "\n".join(shown(LOOK, 200))


def test_an_empty_system_has_no_lists() -> None:
    empty = replace(
        LOOK, running=[], parked=[], unknown=[], rates=None, projected=None, stopped=0,
        relay=RelayGlance("unknown", None), phases={phase.value: 0 for phase in Phase},
    )  # fmt: skip
    text = "\n".join(shown(empty))
    assert "running  " in text
    assert "since" not in text
    assert board.line(empty).endswith("nothing yet; nothing projected, relay unknown")


def test_the_document_holds_plain_numbers() -> None:
    document = board.document(LOOK, None, "default")
    assert document["projector"] == {"seq": 117, "lag": 3, "stopped": 1}
    assert document["relay"] == {"state": "behind", "seq": 119, "lag": 1}
    assert document["approvals"][0]["seconds_left"] == 125
    assert document["pools"][0] == {"pool": "pure", "waiting": 3, "oldest_s": 12.5}
    assert document["running"][0]["session"] == HOSTILE
    assert (document["accepted_per_s"], document["session"], document["tenant"]) == (1234.6, None, None)


# --- counting ------------------------------------------------------------------------------------


class Counted:
    """A view that counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def counts(self) -> Mapping[str, int]:
        self.asked += 1
        return {"done": self.asked}


def test_counting_pauses_for_many_times_what_it_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0.0, 0.1, 1.0, 4.9, 5.2, 5.2])
    monkeypatch.setattr("gateway.glance.time.monotonic", lambda: next(moments))
    view, counting = Counted(), Counting()
    for expected in (1, 1, 1, 2):
        counting.look(cast(LedgerView, view))
        assert view.asked == expected


def test_rates_are_those_of_the_last_seconds() -> None:
    counting = Counting()
    assert counting.rates() is None
    for second in range(31):
        counting.note(
            {"running": 5, "done": 10 * second if second < 20 else 200 + 30 * (second - 20)}, second
        )
    rates = counting.rates()
    assert rates is not None
    assert (round(rates.accepted), round(rates.finished)) == (30, 30)
