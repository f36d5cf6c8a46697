"""The checker: what must hold of ledger, effects, history and views after any fault, once all is quiet.

It reads and never writes. Each finding names its invariant, I1 to I10; none at all is what a test asks for.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psycopg

from gateway.embedded.directory import DataDirectory
from gateway.embedded.ledger_note import server_of
from gateway.reading import Reading, fold_on, open_reading
from gateway.refold import refold
from governance.keys import read_public
from governance.ledger import Due, Head
from governance.verify import Report, verify
from interlock.adapters.ed25519 import Ed25519KeyRing, kid_of
from interlock.canonical import digest_of
from interlock.event import StoredEvent, StreamKind, invocation_stream
from interlock.reduce import IllegalMoveError
from interlock.state import ToolState
from interlock.stream import EventStream
from tests.support.backlog import OPEN_PHASES, held_of
from tests.support.calling import Call, Fate, Verdict
from tests.support.effects import effects_of

RESTING = frozenset(("done", "awaiting_approval", "reconciliation_required"))
MANY = 1_000_000
SLOTS = 2
LATE_US = 15_000_000
"""A due row that nobody acted on for so long is stuck."""
DUES: Mapping[str, frozenset[str]] = {
    "deciding": frozenset(("decide",)),
    "awaiting_approval": frozenset(("approval_expiry", "review")),
    "queued": frozenset(("release",)),
    "running": frozenset(("lease",)),
    "retry_wait": frozenset(("retry",)),
    "reconciliation_required": frozenset(("reconcile",)),
}


class Finding(NamedTuple):
    """One thing that does not hold."""

    invariant: str
    detail: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.detail}"


@dataclass
class World:
    """Everything the invariants look at, read once."""

    calls: Sequence[Call]
    heads: dict[str, Head]
    events: dict[str, list[StoredEvent]]
    dues: dict[str, Due]
    effects: Counter[str]
    faulted: Collection[int]
    pid_of_boot: dict[str, int]
    role_of_boot: dict[str, str]
    report: Report
    now_us: int
    findings: list[Finding] = field(default_factory=list)

    def find(self, invariant: str, detail: str) -> None:
        self.findings.append(Finding(invariant, detail))

    def types(self, invocation_id: str) -> list[str]:
        return [event.type for event in self.events.get(invocation_id, [])]

    def last(self, invocation_id: str, kind: str) -> Mapping[str, Any] | None:
        """The body of the last event of a type."""
        found = [event for event in self.events.get(invocation_id, []) if event.type == kind]
        return found[-1].body() if found else None


def check(
    directory: DataDirectory,
    calls: Sequence[Call],
    faulted: Collection[int] = (),
    *,
    stream: EventStream | None = None,
) -> list[Finding]:
    """Everything that does not hold; `faulted` are the processes that were hindered on purpose."""
    with open_reading(directory) as reading:
        world = _read(directory, reading, calls, faulted)
        for invariant in INVARIANTS:
            invariant(world)
        _views(world, reading)
        if stream is not None:
            _stream(world, reading, stream)
    return world.findings


def _read(
    directory: DataDirectory, reading: Reading, calls: Sequence[Call], faulted: Collection[int]
) -> World:
    with reading.ledger.read() as view:
        heads = {head.id: head for head in view.heads_of(StreamKind.INVOCATION.value, limit=MANY)}
        events = view.events([invocation_stream(identifier) for identifier in heads])
        dues = view.due_of([invocation_stream(identifier) for identifier in heads])
        now_us = view.now_us
    boots = _boots(directory)
    return World(
        calls=calls,
        heads=heads,
        events={stream.id: found for stream, found in events.items()},
        dues={stream.id: due for stream, due in dues.items()},
        effects=effects_of(directory.workspaces),
        faulted=faulted,
        pid_of_boot={boot: pid for boot, _, pid in boots},
        role_of_boot={boot: role for boot, role, _ in boots},
        report=verified(directory, reading),
        now_us=now_us,
    )


def _boots(directory: DataDirectory) -> list[tuple[str, str, int]]:
    """Every boot there ever was: id, role and process."""
    every = "SELECT boot_id, role, pid FROM boot"
    server = server_of(directory)
    if server:
        with psycopg.connect(server) as connection:
            return connection.execute(every).fetchall()
    with closing(sqlite3.connect(f"file:{directory.ledger}?mode=ro", uri=True)) as raw:
        return raw.execute(every).fetchall()


def verified(directory: DataDirectory, reading: Reading) -> Report:
    """What `verify` says of the whole log."""
    public = read_public(directory.keys)
    keys = {purpose: [(kid_of(key), key)] for purpose, key in public.items()}
    anchors = [directory.anchors] if directory.anchors.exists() else []
    return verify(reading.ledger.records(), anchors, keys, Ed25519KeyRing)


# --- the invariants ------------------------------------------------------------------------------------


def _i1_at_most_once(world: World) -> None:
    """No effect that may not be repeated happens twice."""
    for call in world.calls:
        if call.nonce and world.effects[call.nonce] > 1:
            world.find("I1", f"{call.id} ({call.tool}) took effect {world.effects[call.nonce]} times")
    for identifier, types in ((i, world.types(i)) for i in world.heads):
        standing = types.count("ToolExecutionStarted") - types.count("ExecutionReleased")
        if standing > 1 and not world.heads[identifier].may_repeat:
            world.find("I1", f"{identifier} was begun {standing} times")


def _i2_outcome_is_true(world: World) -> None:
    """What the record says about the effect is so."""
    for call in world.calls:
        head = world.heads.get(call.id)
        if not call.nonce or head is None:
            continue
        count, types = world.effects[call.nonce], world.types(call.id)
        completed = world.last(call.id, "ToolExecutionCompleted")
        # A program that says itself that it did not succeed completed all the same.
        if completed is not None and completed["sealed"]["receipt"]["exit_code"] == 0 and count != 1:
            world.find("I2", f"{call.id} completed, and took effect {count} times")
        if "ToolExecutionStarted" not in types and count:
            world.find("I2", f"{call.id} never began ({head.phase}), and took effect")
        failed = world.last(call.id, "ToolExecutionFailed")
        if failed is not None and not failed["failure"]["began"] and count:
            world.find("I2", f"{call.id} failed before its effect, which happened all the same")
    known = {call.nonce for call in world.calls}
    for nonce in world.effects.keys() - known:
        world.find("I7", f"an effect that nobody asked for: {nonce}")


def _i3_answers_hold(world: World) -> None:
    """What was answered stands in the log; what was refused has no effect."""
    for call in world.calls:
        recorded = call.id in world.heads
        if call.fate is Fate.OK and not recorded:
            world.find("I3", f"{call.id} was accepted, and the ledger does not have it")
        if call.fate is Fate.FAIL and recorded and "ToolExecutionRejected" not in world.types(call.id):
            world.find("I3", f"{call.id} was refused ({call.code}), and is {world.heads[call.id].phase}")
        if call.fate is Fate.FAIL and call.nonce and world.effects[call.nonce]:
            world.find("I3", f"{call.id} was refused ({call.code}), and took effect")
        if not recorded and call.nonce and world.effects[call.nonce]:
            world.find("I3", f"{call.id} took effect, and the ledger does not have it")


def _i4_nothing_is_stuck(world: World) -> None:
    """Everything is final, parked, unknown, or held by one of its stage that is parked or unknown."""
    wanted = {call.id: call.verdict for call in world.calls}
    held = held_of(world.heads.values())
    for head in world.heads.values():
        if head.phase in OPEN_PHASES and head.id not in held:
            world.find("I4", f"{head.id} ({head.tool}) is still {head.phase}")
        answered = wanted.get(head.id) in (Verdict.APPROVE, Verdict.DENY)
        if head.phase == "awaiting_approval" and answered:
            world.find("I4", f"{head.id} was answered, and is still parked")
    for due in world.dues.values():
        if due.at_us < world.now_us - LATE_US:
            world.find("I4", f"{due.what} of {due.id} is due for {(world.now_us - due.at_us) / 1e6:.0f} s")


def _i6_log_is_whole(world: World) -> None:
    """`verify` agrees, and every wait owns the one due row of its kind."""
    for fault in world.report.faults:
        world.find("I6", f"event {fault.seq}: {fault.code.value}: {fault.detail}")
    for head in world.heads.values():
        due = world.dues.get(head.id)
        allowed = DUES.get(head.phase, frozenset())
        if (due.what if due else None) not in (allowed or {None}):
            world.find("I6", f"{head.id} is {head.phase}, and what falls due is {due and due.what}")


def _i7_only_what_was_allowed(world: World) -> None:
    """What ran is what its caller asked for, and was granted before."""
    for call in world.calls:
        types = world.types(call.id)
        if "ToolExecutionStarted" not in types:
            continue
        if "ApprovalGranted" not in types[: types.index("ToolExecutionStarted")]:
            world.find("I7", f"{call.id} began without a grant")
        requested = world.events[call.id][0].body()
        if requested["arguments_hash"] != digest_of(call.arguments) or requested["tool"] != call.tool:
            world.find("I7", f"{call.id} is not what its caller asked for")
        granted = world.last(call.id, "ApprovalGranted")
        assert granted is not None
        if call.verdict is not Verdict.NONE and granted["by"] != "quorum":
            world.find("I7", f"{call.id} needed an approval, and was granted by {granted['by']}")
        if call.verdict in (Verdict.DENY, Verdict.LEAVE):
            world.find("I7", f"{call.id} was to be {call.verdict.value}, and ran")


def _i8_unknown_only_by_fault(world: World) -> None:
    """An outcome is unknown only where a process that held its claim was ended; never for what may repeat."""
    per_boot: Counter[str] = Counter()
    for identifier, events in world.events.items():
        for boot, given_up in _given_up_claims(events):
            if world.pid_of_boot.get(boot) not in world.faulted:
                world.find("I8", f"{identifier}: {given_up}, and its process was left alone")
            if given_up == "ReconciliationRequired":
                per_boot[boot] += 1
                if world.heads[identifier].may_repeat:
                    world.find("I8", f"the outcome of {identifier} is unknown, and it may be repeated")
    for count in per_boot.values():
        if count > SLOTS:
            world.find("I8", f"one process left {count} unknown outcomes")
    for call in world.calls:
        if call.fate is Fate.OK and call.may_repeat:
            _require_completed(world, call)


def _require_completed(world: World, call: Call) -> None:
    head, types = world.heads.get(call.id), world.types(call.id)
    if head is None or head.phase != "done" or "ToolExecutionCompleted" in types:
        return
    lost = types.count("ExecutionAbandoned") + types.count("ExecutionAttemptFailed")
    failed = world.last(call.id, "ToolExecutionFailed")
    if (
        failed is not None
        and failed["failure"]["code"] == "ATTEMPTS_EXHAUSTED"
        and lost >= 2
        and world.faulted
    ):
        return
    why = None if failed is None else (failed["failure"]["code"], failed["failure"]["sentence"])
    world.find("I8", f"{call.id} ({call.tool}) may be repeated, and did not complete: {types}, {why}")


def _given_up_claims(events: Sequence[StoredEvent]) -> Iterator[tuple[str, str]]:
    """The boots whose claims were given up, and how."""
    boot = ""
    for event in events:
        if event.type == "ToolExecutionStarted":
            boot = event.body()["boot"]
        elif event.type in ("ReconciliationRequired", "ExecutionAbandoned"):
            yield boot, event.type


def _i9_nothing_vanishes(world: World) -> None:
    """What was accepted is somewhere, once."""
    accepted = {call.id for call in world.calls if call.fate is Fate.OK}
    by_phase: dict[str, set[str]] = defaultdict(set)
    for head in world.heads.values():
        by_phase[head.phase].add(head.id)
    places = Counter(identifier for ids in by_phase.values() for identifier in ids)
    for identifier in accepted:
        if places[identifier] != 1:
            world.find("I9", f"{identifier} was accepted and stands in {places[identifier]} places")


def _i10_right_pool(world: World) -> None:
    """What ran, ran in the pool of its class, claimed by a process of that pool."""
    for identifier, events in world.events.items():
        wanted = world.heads[identifier].pool
        for event in events:
            if event.type != "ToolExecutionStarted":
                continue
            body = event.body()
            role = world.role_of_boot.get(body["boot"], "")
            if body["pool"] != wanted or role != f"pool.{wanted}":
                world.find("I10", f"{identifier} of pool {wanted} ran in {body['pool']} ({role})")


INVARIANTS = (
    _i1_at_most_once,
    _i2_outcome_is_true,
    _i3_answers_hold,
    _i4_nothing_is_stuck,
    _i6_log_is_whole,
    _i7_only_what_was_allowed,
    _i8_unknown_only_by_fault,
    _i9_nothing_vanishes,
    _i10_right_pool,
)


def _views(world: World, reading: Reading) -> None:
    """I5: the views stand at the ledger's end and are what the events add up to, byte for byte."""
    if reading.projection is None:
        world.find("I5", "nothing was ever projected")
        return
    with reading.ledger.read() as view:
        last = view.last_seq()
    checkpoint = reading.projection.checkpoint()
    if checkpoint.seq != last:
        world.find("I5", f"the views stand at {checkpoint.seq}, the ledger at {last}")
        return
    for tenant, session in sorted({(head.tenant, head.session) for head in world.heads.values()}):
        # By the plain fold, and not by what projects: a mistake of the projector's own must show.
        try:
            events = reading.session_events(session, tenant, until=last)
            folded = fold_on(ToolState(session, (), tenant), events).to_bytes()
        except IllegalMoveError as error:
            world.find("I5", f"session {session} cannot be folded: {error}")
            continue
        if folded != reading.projection.state_bytes(session, tenant):
            world.find("I5", f"the view of session {session} is not what its events add up to")
    for stopped in reading.projection.stopped():
        world.find("I5", f"session {stopped} cannot be folded")
    refolded = refold(reading)
    if not refolded.equal:
        world.find("I5", f"folded anew, these differ: {refolded.differences}")


def _stream(world: World, reading: Reading, stream: EventStream) -> None:
    """The stream holds what the ledger holds, each number once, in order."""
    with reading.ledger.read() as view:
        rows = {event.seq: event.hash for event in view.range(0, MANY)}
    entries = stream.read(0, MANY, 0)
    numbers = [entry.seq for entry in entries]
    if numbers != sorted(set(numbers)):
        world.find("I6", "the stream's numbers are not in order")
    for entry in entries:
        if rows.get(entry.seq) != entry.hash:
            world.find("I6", f"entry {entry.seq} of the stream is not the ledger's event")
    if rows and (not numbers or numbers[-1] != max(rows)):
        world.find("I6", f"the stream ends at {numbers[-1:]}, the ledger at {max(rows)}")
