"""Resolving an unknown outcome: what a person found out ends the invocation and frees its stage.

Never sends the effect again, and never flips what is final. `not_executed` is only taken where the claimant
can no longer begin: it is proven dead, or its claim is older than anything it may still do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from governance import lock
from governance.ledger import Append, Head, Ledger, LedgerTransaction, head_with
from governance.line import Line
from interlock.canonical import read_stored
from interlock.contract import Tool
from interlock.decision import Reason
from interlock.event import ReconciliationResolved, StoredEvent, invocation_stream, new_event
from interlock.hint import Hint
from interlock.phase import Phase

KILL_GRACE_MS = 10_000
"""Within which an execution that was ended is certainly gone."""
WALL_LIMIT_MS_MAX = 86_400_000
"""What any contract may allow, where the claim's own contract cannot be read."""

BootProbe = Callable[[str], bool]
"""Whether the boot of this id is proven dead: its file lock is free on this very host."""


class Verdict(StrEnum):
    """What was found out on the other side."""

    EXECUTED = "executed"
    NOT_EXECUTED = "not_executed"


@dataclass(frozen=True, slots=True)
class Resolved:
    """What the resolution did."""

    verdict: str
    hints: tuple[Hint, ...] = ()
    """What its end let forward; publish them."""
    already: bool = False
    """The same verdict had been given before, and nothing changed."""


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """The claim whose outcome is unknown."""

    boot: str
    claimed_us: int
    over_us: int
    """From when on nothing of it can begin or run, by the store's clock."""


def resolve(
    ledger: Ledger,
    line: Line,
    invocation_id: str,
    verdict: Verdict,
    *,
    by: str,
    reason: str,
    is_dead: BootProbe,
) -> Resolved | Reason:
    """End one invocation of unknown outcome as `executed` or `not_executed`; a Reason says why it was not.

    The end, the stage's next step and its release stand in one transaction. `by` is an operator's name.
    """
    stream = invocation_stream(invocation_id)
    with ledger.read() as view:
        found = view.heads([stream])
    while stream in found:
        with ledger.write(lock.of_line(found.values())) as transaction:
            head = transaction.heads([stream])[stream]
            events = transaction.events([stream])[stream]
            settled = _settled(head, events, verdict) or _too_early(
                transaction, head, events, verdict, is_dead
            )
            if settled is not None:
                return settled
            if transaction.append([_append(head, verdict, by, reason)]):
                continue
            pools = line.advance(transaction, [head.stage_key])
            return Resolved(verdict.value, tuple(line.release(transaction, pools)))
    return Reason(code="NOT_FOUND", sentence=f"there is no invocation {invocation_id}")


def claim_facts(events: Sequence[StoredEvent], contract: Tool | None) -> ClaimFacts | None:
    """The last claim of an invocation; None where none ever stood."""
    started = next((event for event in reversed(events) if event.type == "ToolExecutionStarted"), None)
    if started is None:
        return None
    body = started.body()
    wall_ms = WALL_LIMIT_MS_MAX if contract is None else contract.timeout_ms
    life_ms = int(body["start_by_ms"]) + wall_ms + KILL_GRACE_MS
    return ClaimFacts(str(body["boot"]), started.at_us, started.at_us + life_ms * 1_000)


def _settled(head: Head, events: Sequence[StoredEvent], verdict: Verdict) -> Resolved | Reason | None:
    if head.phase == Phase.RECONCILIATION_REQUIRED.value:
        return None
    last = events[-1]
    if last.type == ReconciliationResolved.__name__:
        if last.body()["verdict"] == verdict.value:
            return Resolved(verdict.value, already=True)
        sentence = f"it was resolved as {last.body()['verdict']} before, and a final state never flips"
        return Reason(code="NOT_UNRESOLVED", sentence=sentence)
    return Reason(code="NOT_UNRESOLVED", sentence=f"its outcome is not unknown: it is {head.phase}")


def _too_early(
    transaction: LedgerTransaction,
    head: Head,
    events: Sequence[StoredEvent],
    verdict: Verdict,
    is_dead: BootProbe,
) -> Reason | None:
    """Why `not_executed` cannot be known yet: whoever claimed it may wake and begin."""
    if verdict is not Verdict.NOT_EXECUTED:
        return None
    body = transaction.contracts([head.contract_digest]).get(head.contract_digest)
    facts = claim_facts(events, None if body is None else Tool.model_validate(read_stored(body)))
    if facts is None or is_dead(facts.boot) or transaction.now_us > facts.over_us:
        return None
    left = (facts.over_us - transaction.now_us) // 1_000_000 + 1
    sentence = f"the process that claimed it may still live and begin it; in {left} s that is ruled out"
    return Reason(code="CLAIM_MAY_LIVE", sentence=sentence)


def _append(head: Head, verdict: Verdict, by: str, reason: str) -> Append:
    payload = ReconciliationResolved(verdict=verdict.value, by=f"operator:{by}", reason=reason)
    event = new_event(payload, cause=f"operator:{by}", actor=by)
    after = head_with(head, phase=Phase.DONE.value, ready=False, published_us=0, nonce="", boot="")
    return Append(head.stream, head.version, [event], after, None, head.tenant, head.session)
