"""A look at the system as lines, as JSON, or as tables for a terminal. Pure.

Names that came from outside are made visible; on a narrow terminal a cell ends in an ellipsis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gateway.cli.moment import iso, span
from gateway.cli.visible import visible

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from gateway.glance import Glance
    from governance.ledger import Head


NARROW = 80


def document(look: Glance, session: str | None, tenant: str) -> dict[str, Any]:
    """The look as JSON."""
    return {
        "at": iso(look.at_us),
        "tenant": None if session is None else tenant,
        "session": session,
        "seq": look.seq,
        "phases": dict(look.phases),
        "accepted_per_s": None if look.rates is None else round(look.rates.accepted, 1),
        "finished_per_s": None if look.rates is None else round(look.rates.finished, 1),
        "pools": [
            {"pool": one.pool, "waiting": one.waiting, "oldest_s": _rounded(one.oldest_s)}
            for one in look.pools
        ],
        "running": [_entry(head, since=iso(_since_us(head))) for head in look.running],
        "approvals": [
            _entry(one.head, seconds_left=_rounded(_left(look, one.expires_us))) for one in look.parked
        ],
        "unknown": [_entry(head, since=iso(head.at_us)) for head in look.unknown],
        "projector": None
        if look.projected is None
        else {"seq": look.projected, "lag": max(0, look.seq - look.projected), "stopped": look.stopped},
        "relay": {
            "state": look.relay.state,
            "seq": look.relay.seq,
            "lag": None if look.relay.seq is None else max(0, look.seq - look.relay.seq),
        },
        "numbers": None
        if look.numbers is None
        else {"waiting_s": _rounded(look.numbers.waiting_s), "held": look.numbers.is_held},
    }


def line(look: Glance) -> str:
    """The look in a line."""
    phases = ", ".join(f"{phase} {count}" for phase, count in look.phases.items() if count)
    return f"{iso(look.at_us)}  event {look.seq}  {phases or 'nothing yet'}; {lags(look)}"


def lags(look: Glance) -> str:
    """How far projector and relay are, and numbering where it is late."""
    if look.projected is None:
        projector = "nothing projected"
    else:
        projector = f"projector {max(0, look.seq - look.projected)} behind"
    if look.stopped:
        projector += f", {look.stopped} sessions stopped"
    state, seq = look.relay
    relay = f"relay {look.seq - seq} behind" if state == "behind" and seq is not None else f"relay {state}"
    return f"{projector}, {relay}{_late(look)}"


def _late(look: Glance) -> str:
    if look.numbers is None or not look.numbers.is_late:
        return ""
    cause = "held by an open transaction" if look.numbers.is_held else "nobody gives them"
    return f"; NUMBERS ARE LATE by {span(look.numbers.waiting_s)} ({cause}; see `interlock doctor`)"


def tables(look: Glance, session: str | None, width: int) -> RenderableType:
    """The look for a terminal of so many columns; on a narrow one without ids."""
    from rich.console import Group
    from rich.text import Text

    rates = "" if look.rates is None else _rates(look.rates.accepted, look.rates.finished)
    of = "" if session is None else f"  session {visible(session)}"
    parts: list[RenderableType] = [
        Text(f"{iso(look.at_us)}  event {look.seq}{of}", no_wrap=True, overflow="ellipsis"),
        Text(f"{lags(look)}{rates}"),
        _table([("phase", False), ("invocations", True)], [(p, str(n)) for p, n in look.phases.items()]),
        _table(
            [("pool", False), ("waiting", True), ("oldest", True)],
            [(one.pool, str(one.waiting), _span(one.oldest_s)) for one in look.pools],
        ),
    ]
    parts += _listed(
        "running", "since", look.running, [_ago(look, _since_us(head)) for head in look.running], width
    )
    parts += _listed(
        "waits for an approval",
        "left",
        [one.head for one in look.parked],
        [_span(_left(look, one.expires_us)) for one in look.parked],
        width,
    )
    parts += _listed(
        "outcome unknown", "since", look.unknown, [_ago(look, head.at_us) for head in look.unknown], width
    )
    return Group(*parts)


def _listed(
    title: str, moment: str, heads: Sequence[Head], moments: Sequence[str], width: int
) -> list[RenderableType]:
    if not heads:
        return []
    rows = [
        (visible(head.tool), visible(head.session), when, head.id)
        for head, when in zip(heads, moments, strict=True)
    ]
    titles = [(title, False), ("session", False), (moment, True), ("invocation", False)]
    shown = len(titles) if width >= NARROW else len(titles) - 1
    return [_table(titles[:shown], [row[:shown] for row in rows])]


def _table(titles: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title, is_number in titles:
        table.add_column(title, no_wrap=True, overflow="ellipsis", justify="right" if is_number else "left")
    for row in rows:
        # As text, never as markup: a name may hold brackets.
        table.add_row(*map(Text, row))
    return table


def _entry(head: Head, **more: Any) -> dict[str, Any]:
    return {
        "invocation_id": head.id,
        "tool": head.tool,
        "tenant": head.tenant,
        "session": head.session,
        "stage": head.stage,
        "pool": head.pool,
        **more,
    }


def _since_us(head: Head) -> int:
    return head.claimed_us or head.at_us


def _left(look: Glance, expires_us: int | None) -> float | None:
    return None if expires_us is None else max(0, expires_us - look.at_us) / 1_000_000


def _ago(look: Glance, at_us: int) -> str:
    return span((look.at_us - at_us) / 1_000_000)


def _span(seconds: float | None) -> str:
    return "" if seconds is None else span(seconds)


def _rates(accepted: float, finished: float) -> str:
    return f"; {accepted:,.1f} accepted and {finished:,.1f} finished a second"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
