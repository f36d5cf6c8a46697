"""Granting: evaluates the votes on a parked invocation, and judges again what is due to be judged again.

Faces only append votes; here alone the quorum is counted, the permit signed and the work released, in one
transaction. Approval by one person is enough in this version; the requester and its subject never count.
Rights are those of the moment of the grant, not of the vote.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from governance import lock
from governance.decide import ACTOR, Clerk, Matter, done, ending
from governance.docket import Docket, load_dockets
from governance.gate import Case, Gate
from governance.ledger import Append, Head, Ledger, LedgerTransaction, LedgerView, StageKey, head_with
from governance.line import Line
from governance.park import parked_due
from governance.principal import asking_persons, find_principals, may_answer
from governance.sensitive import Sealer, opened_arguments
from governance.session import SessionFacts, session_facts, session_stream
from governance.toolbox import KnownTool, Toolbox
from interlock.canonical import thaw
from interlock.decision import Reason
from interlock.event import ApprovalDenied, ApprovalExpired, ApprovalVoted, new_event
from interlock.fault import FaultPoints
from interlock.hint import Hint
from interlock.phase import Phase


class _World(NamedTuple):
    """Contracts as they stand under one control epoch."""

    epoch: int
    known: dict[str, KnownTool | None]


@dataclass(frozen=True, slots=True)
class Grant:
    """Reviews parked and undecided invocations."""

    ledger: Ledger
    toolbox: Toolbox
    gate: Gate
    clerk: Clerk
    line: Line
    sealer: Sealer
    faults: FaultPoints

    def review(self, invocation_ids: Iterable[str]) -> list[Hint]:
        """Look at each once: grant, reject, expire, or leave it waiting. Returns the hints to publish."""
        wanted = sorted(set(invocation_ids))
        if not wanted:
            return []
        with self.ledger.read() as view:
            dockets = load_dockets(view, wanted).values()
        # What is read of them here was said once, with the request, and never changes.
        names, keys = {docket.requested.tool for docket in dockets}, _keys(dockets)
        hints: list[Hint] | None = None
        while hints is None:
            epoch, known = self.toolbox.find_all(names)
            hints = self._review([docket.head.id for docket in dockets], keys, _World(epoch, known))
        return hints

    def _review(self, wanted: Sequence[str], keys: set[str], world: _World) -> list[Hint] | None:
        with self.ledger.write(keys) as transaction:
            if transaction.epoch() != world.epoch:
                return None
            dockets = load_dockets(transaction, wanted).values()
            appends = [append for docket in dockets if (append := self._answer(transaction, docket, world))]
            lost = transaction.append(appends)
            heads = [a.head for a in appends if a.head is not None and a.stream not in lost]
            pools = self._advance(transaction, heads)
            hints = self.line.release(transaction, pools)
            self.faults.reach("grant.before_commit")
        self.faults.reach("grant.after_commit")
        return hints

    def _advance(self, transaction: LedgerTransaction, heads: Iterable[Head]) -> set[str]:
        """Every stage where something was granted or ended moves on."""
        stages: set[StageKey] = {
            h.stage_key for h in heads if h.phase in (Phase.QUEUED.value, Phase.DONE.value)
        }
        return self.line.advance(transaction, stages)

    def _answer(self, transaction: LedgerTransaction, docket: Docket, world: _World) -> Append | None:
        if docket.head.phase in _JUDGED_AGAIN or _is_over(docket.head, transaction.now_us):
            approvers = _standing_approvers(transaction, docket)
            return self._judge(transaction, docket, world, approvers=approvers)
        if docket.head.phase != Phase.AWAITING_APPROVAL.value or docket.request is None:
            return None
        return self._parked(transaction, docket, world)

    def _parked(self, transaction: LedgerTransaction, docket: Docket, world: _World) -> Append | None:
        request = docket.request
        assert request is not None
        denial = next((vote for vote in docket.votes if vote.vote.decision == "deny"), None)
        if denial is not None:
            transaction.deny(docket.requested.action_digest, docket.head.id)
            return _denied(docket, denial)
        if transaction.now_us >= request.expires_us:
            return _expired(docket, request.expires_us)
        approvers = quorum(transaction, docket)
        if len(approvers) < request.need.count:
            # An answer that does not count must not hide the end of the wait, nor be looked at for ever.
            transaction.set_due(parked_due(docket.head, request))
            return None
        return self._judge(transaction, docket, world, approvers=approvers)

    def _judge(
        self, transaction: LedgerTransaction, docket: Docket, world: _World, *, approvers: tuple[str, ...]
    ) -> Append:
        """Put it before the gate again as the world stands now, with the answers it has."""
        case = self._case(transaction, docket, world, approved=bool(approvers))
        decision = self.gate.judge(case, world.epoch)
        head = docket.head
        matter = Matter(
            head,
            docket.requested,
            case.contract,
            decision,
            approvers=approvers,
            cause=f"invocation:{head.id}@{head.version}",
        )
        return self.clerk.write([matter], now_us=transaction.now_us)[0]

    def _case(self, transaction: LedgerTransaction, docket: Docket, world: _World, *, approved: bool) -> Case:
        requested, head = docket.requested, docket.head
        known = world.known[requested.tool]
        stored = thaw(requested.arguments)
        assert isinstance(stored, dict), "what is parked or deferred had arguments"
        arguments = opened_arguments(stored, requested.sensitive, self.sealer, head.id)
        session = _session_of(transaction, head)
        return Case(
            tool=requested.tool,
            contract=known.contract if known else None,
            arguments=arguments,
            arguments_fault=None,
            schema_faults=known.faults(arguments) if known else (),
            mode=session.mode,
            asked_mode=requested.mode,
            session_closed=False,  # What was accepted before the close goes on.
            session_foreign=session.client != requested.client,
            twin=_twin_of(transaction, head),
            denied_by=transaction.denials([requested.action_digest]).get(requested.action_digest),
            deadline_passed=bool(head.deadline_us) and transaction.now_us >= head.deadline_us,
            cancel_requested=head.cancel,
            approved=approved,
            contract_changed=known is not None and known.digest != requested.contract_digest,
        )


def _keys(dockets: Iterable[Docket]) -> set[str]:
    """Everything that these touch: themselves, their stages, and what is the same action."""
    actions = {lock.of_action(docket.requested.action_digest) for docket in dockets}
    return actions | lock.of_line(docket.head for docket in dockets)


_JUDGED_AGAIN = frozenset((Phase.DECIDING.value, Phase.RETRY_WAIT.value))


def _is_over(head: Head, now_us: int) -> bool:
    """Whether a queued invocation's deadline passed before anybody claimed it."""
    return head.phase == Phase.QUEUED.value and 0 < head.deadline_us <= now_us


def quorum(view: LedgerView, docket: Docket) -> tuple[str, ...]:
    """The approvers whose yes counts now: one a person, with the rights they have at this moment."""
    agreeing = [
        voted.vote
        for voted in docket.votes
        if voted.vote.decision == "approve" and not 0 < voted.vote.expires_us <= view.now_us
    ]
    return _entitled(view, docket, [vote.approver for vote in agreeing])


def _entitled(view: LedgerView, docket: Docket, names: Sequence[str]) -> tuple[str, ...]:
    """Those of these approvers who may grant it now, the first of each person; never who asks."""
    requested = docket.requested
    asking = asking_persons(view, requested)
    principals = find_principals(view, names)
    counted: dict[str, str] = {}
    for name in names:
        approver = principals.get(name)
        if approver is not None and may_answer(approver, requested, asking):
            counted.setdefault(approver.person, name)
    return tuple(counted.values())


def _standing_approvers(view: LedgerView, docket: Docket) -> tuple[str, ...]:
    """An approval once given stands while a permit is minted anew, until it has itself expired, as long as
    those who gave it still may."""
    granted, request = docket.granted, docket.request
    if granted is None or request is None or granted.by != "quorum" or view.now_us >= request.expires_us:
        return ()
    standing = _entitled(view, docket, granted.approvers)
    return standing if len(standing) >= request.need.count else ()


def _session_of(transaction: LedgerTransaction, head: Head) -> SessionFacts:
    stream = session_stream(head.tenant, head.session)
    return session_facts(transaction.heads([stream])[stream])


def _twin_of(transaction: LedgerTransaction, head: Head) -> str | None:
    if not head.guards_twins:
        return None
    twin = transaction.twins([head.action_digest]).get(head.action_digest)
    return None if twin == head.id else twin


def _denied(docket: Docket, denial: ApprovalVoted) -> Append:
    reason = Reason(code="APPROVAL_DENIED", sentence=denial.vote.reason or "an approver said no")
    payload = ApprovalDenied(approver=denial.vote.approver, reason=reason.sentence)
    return _ended(docket, payload, reason, cause=f"vote:{denial.vote.decision_id}")


def _expired(docket: Docket, expires_us: int) -> Append:
    reason = Reason(code="APPROVAL_EXPIRED", sentence="nobody answered in time")
    return _ended(docket, ApprovalExpired(expires_us=expires_us), reason, cause="timer:approval_expiry")


def _ended(
    docket: Docket, payload: ApprovalDenied | ApprovalExpired, reason: Reason, *, cause: str
) -> Append:
    head = docket.head
    events = [
        new_event(payload, cause=cause, actor=ACTOR),
        new_event(ending(head, reason), cause=f"invocation:{head.id}@{head.version + 1}", actor=ACTOR),
    ]
    after = head_with(done(head), version=head.version)
    return Append(head.stream, head.version, events, head=after, tenant=head.tenant, session=head.session)
