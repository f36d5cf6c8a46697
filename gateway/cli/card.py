"""What an approver is shown of a parked invocation: everything that is frozen, and nothing hidden. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gateway.cli.moment import iso, span
from gateway.cli.name import command_name
from gateway.cli.visible import hidden_in, visible, visible_json
from governance.docket import Docket
from interlock.canonical import thaw
from interlock.event import ApprovalRequested

TERMS_SHOWN = 16
"""Digits of the terms' digest that an answer names, so that it can only mean what was looked at."""


@dataclass(frozen=True, slots=True)
class Card:
    """One parked invocation as it is put before a person."""

    docket: Docket
    request: ApprovalRequested
    now_us: int

    @property
    def seconds_left(self) -> float:
        return (self.request.expires_us - self.now_us) / 1_000_000

    @property
    def arguments(self) -> Any:
        """The frozen arguments as plain JSON; sensitive values are masked in the snapshot already."""
        return thaw(self.request.snapshot.arguments)

    @property
    def terms(self) -> str:
        """What an answer to this card is for."""
        return self.request.snapshot.terms.digest

    def command(self, verb: str) -> str:
        """The one command that answers it."""
        return f"{command_name()} {verb} {self.docket.head.id} --terms {self.terms[:TERMS_SHOWN]}"

    def to_json(self) -> dict[str, Any]:
        snapshot = self.request.snapshot
        return {
            "invocation_id": snapshot.invocation_id,
            "tool": snapshot.tool,
            "tool_version": snapshot.tool_version,
            "contract_digest": snapshot.contract_digest,
            "tier": snapshot.tier,
            "tenant": snapshot.tenant,
            "client": snapshot.client,
            "subject": snapshot.subject,
            "session": snapshot.session,
            "stage": snapshot.stage,
            "route": snapshot.route,
            "arguments": self.arguments,
            "arguments_hash": snapshot.arguments_hash,
            "hidden": hidden_in(self.arguments),
            "reasons": thaw(snapshot.reasons),
            "needed": self.request.need.count,
            "votes": [voted.vote.to_json() for voted in self.docket.votes],
            "expires_at": iso(self.request.expires_us),
            "seconds_left": round(self.seconds_left, 3),
            "terms": self.terms,
            "approve": self.command("approve"),
            "deny": f"{self.command('deny')} --reason WHY",
        }

    def lines(self) -> list[str]:
        """The card for a terminal, whole: long arguments are never cut."""
        snapshot = self.request.snapshot
        behalf = f" for {snapshot.subject}" if snapshot.subject else ""
        what = f"{snapshot.tier}  {snapshot.tool} version {snapshot.tool_version}"
        head = f"{what}, asked by {snapshot.client}{behalf}"
        place = f"    session {snapshot.session}, stage {snapshot.stage}, {span(self.seconds_left)} left"
        why = [f"    {reason['code']}: {reason['sentence']}" for reason in self._reasons()]
        hidden = [f"    HIDDEN CHARACTERS: {note}" for note in hidden_in(self.arguments)]
        arguments = [f"    {line}" for line in visible_json(self.arguments).split("\n")]
        said = [f"    {voted.vote.approver} said {voted.vote.decision}" for voted in self.docket.votes]
        words = map(visible, [head, place, *why, *said, *hidden])
        return [*words, *arguments, f"    {self.command('approve')}"]

    def _reasons(self) -> Iterable[Any]:
        reasons = thaw(self.request.snapshot.reasons)
        return reasons if isinstance(reasons, list) else []


def cards(dockets: Iterable[Docket], now_us: int) -> list[Card]:
    """A card for each that waits, the greatest power first, then the least time left."""
    waiting = [Card(docket, docket.request, now_us) for docket in dockets if docket.request is not None]
    waiting.sort(key=lambda card: card.request.expires_us)
    waiting.sort(key=lambda card: card.request.snapshot.tier, reverse=True)
    return waiting
