"""Proposing: takes a batch of proposals into the ledger, judged, in one transaction.

The first acceptance of an id or key is the only one; the same again gets the first answer. Publishes nothing:
it returns the hints that whoever called publishes after the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from governance import lock
from governance.decide import Clerk, Matter
from governance.draft import Draft, deadline_us, draft, first_head
from governance.gate import Case, Gate
from governance.ledger import Append, Head, KeyName, KeyOwner, Ledger, LedgerTransaction, StageKey
from governance.line import Line
from governance.sensitive import Sealer
from governance.session import IMPLICIT_MODE, SessionFacts, opening, session_facts, session_stream
from governance.toolbox import Toolbox
from interlock.answer import Answer
from interlock.decision import Decision, DecisionKind, Reason
from interlock.event import (
    Stream,
    ToolExecutionRejected,
    ToolInvocationRequested,
    invocation_stream,
    new_event,
)
from interlock.fault import FaultPoints
from interlock.hint import Hint
from interlock.identifier import id_time_us
from interlock.proposal import Proposal
from interlock.variant import Variants

DAY_US = 86_400_000_000
_cases = Variants(Case)
_matters = Variants(Matter)


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of a batch: an answer each, in the order given, and what to publish."""

    answers: tuple[Answer, ...]
    hints: tuple[Hint, ...]


@dataclass(frozen=True, slots=True)
class Propose:
    """Takes proposals in."""

    ledger: Ledger
    toolbox: Toolbox
    gate: Gate
    clerk: Clerk
    line: Line
    sealer: Sealer
    faults: FaultPoints

    def accept(self, proposals: Sequence[Proposal], *, broker_now_us: int) -> Accepted:
        """Record and judge a batch. Raises LedgerUnavailableError, after which nothing of it was accepted."""
        while True:
            epoch, known = self.toolbox.find_all(proposal.tool for proposal in proposals)
            drafts = [draft(proposal, known[proposal.tool], self.sealer) for proposal in proposals]
            accepted = self._record(drafts, epoch, broker_now_us)
            if accepted is not None:
                return accepted

    def _record(self, drafts: Sequence[Draft], epoch: int, broker_now_us: int) -> Accepted | None:
        """One transaction; None when the contracts that the drafts were made with changed."""
        with self.ledger.write(_keys(drafts)) as transaction:
            if transaction.epoch() != epoch:
                return None
            batch = _Batch(self.gate, self.clerk, transaction, epoch, broker_now_us)
            batch.gather(drafts)
            refusals = [batch.take(ready) for ready in drafts]
            heads = batch.write()
            hints = self.line.release(transaction, batch.pools)
            self.faults.reach("propose.before_commit")
        self.faults.reach("propose.after_commit")
        return Accepted(tuple(map(_answer, drafts, refusals, repeat(heads))), tuple(hints))


def _keys(drafts: Iterable[Draft]) -> set[str]:
    """Everything that these touch: ids, sessions, stages, what is the same action, idempotency keys."""
    keys: set[str] = set()
    for ready in drafts:
        proposal = ready.proposal
        keys.add(lock.of_invocation(proposal.id))
        keys.add(lock.of_session(proposal.tenant, proposal.session))
        keys.add(lock.of_stage(_stage_of(proposal)))
        keys.add(lock.of_action(ready.requested.action_digest))
        if proposal.key is not None:
            keys.add(lock.of_idempotency(proposal.tenant, proposal.client, proposal.key))
    return keys


def _answer(ready: Draft, answer: Answer | None, heads: Mapping[str, Head]) -> Answer:
    """The answer with where its invocation stands in the ledger, if the ledger has it; None is accepted."""
    if answer is None:
        stands = heads[ready.proposal.id]
        return Answer.of_checked(
            invocation_id=stands.id, status="accepted", phase=stands.phase, seq=stands.accepted_seq
        )
    head = heads.get(answer.invocation_id or "")
    if head is None or answer.code in _UNRECORDED:
        return answer
    return answer.model_copy(update={"phase": head.phase, "seq": head.accepted_seq})


_UNRECORDED = frozenset(("ID_CONFLICT", "KEY_REUSED", "ID_TIME_OUT_OF_RANGE", "ACCEPT_UNTIL_PASSED"))
"""Refusals that reveal nothing, because the ledger's invocation of that id is not the caller's."""


def _stage_of(proposal: Proposal) -> StageKey:
    return StageKey(proposal.tenant, proposal.session, proposal.stage)


def _key_of(proposal: Proposal) -> KeyName | None:
    return None if proposal.key is None else KeyName(proposal.tenant, proposal.client, proposal.key)


@dataclass(slots=True)
class _Batch:
    """One batch inside its transaction: the facts, and what the earlier of the batch add to them."""

    gate: Gate
    clerk: Clerk
    transaction: LedgerTransaction
    epoch: int
    broker_now_us: int
    heads: dict[Stream, Head] = field(default_factory=dict)
    owners: dict[KeyName, KeyOwner] = field(default_factory=dict)
    sessions: dict[Stream, SessionFacts] = field(default_factory=dict)
    busy: set[StageKey] = field(default_factory=set)
    twins: dict[str, str] = field(default_factory=dict)
    denials: dict[str, str] = field(default_factory=dict)
    openings: list[Append] = field(default_factory=list)
    matters: list[Matter] = field(default_factory=list)
    bindings: list[tuple[KeyName, KeyOwner]] = field(default_factory=list)
    pools: set[str] = field(default_factory=set)

    def gather(self, drafts: Sequence[Draft]) -> None:
        """Read every fact the batch needs, one query a kind."""
        proposals = [ready.proposal for ready in drafts]
        view = self.transaction
        streams = [invocation_stream(p.id) for p in proposals]
        streams += [session_stream(p.tenant, p.session) for p in proposals]
        found = view.heads(set(streams))
        self.heads = {stream: head for stream, head in found.items() if stream.kind == "invocation"}
        sessions = {stream: head for stream, head in found.items() if stream.kind == "session"}
        # Few things are said of many sessions.
        facts = {head.data: session_facts(head) for head in {h.data: h for h in sessions.values()}.values()}
        self.sessions = {stream: facts[head.data] for stream, head in sessions.items()}
        self.owners = view.key_owners({key for p in proposals if (key := _key_of(p)) is not None})
        lines = view.stage_lines({_stage_of(p) for p in proposals}, limit=1)
        self.busy = {stage for stage, line in lines.items() if line}
        guarded = {ready.requested.action_digest for ready in drafts if ready.known is not None}
        self.denials = view.denials(guarded)
        self.twins = view.twins(
            {
                ready.requested.action_digest
                for ready in drafts
                if ready.known is not None and ready.known.guards_twins
            }
        )

    def take(self, ready: Draft) -> Answer | None:
        """Judge whether this one comes in, and prepare what is recorded of it; None where it is accepted."""
        proposal = ready.proposal
        stands = self.heads.get(invocation_stream(proposal.id))
        if stands is not None:
            return self._same_again(proposal, stands)
        refused = self._refusal(proposal)
        if refused is not None:
            return refused
        key = _key_of(proposal)
        if key is not None and key in self.owners:
            return self._key_again(proposal, self.owners[key])
        return self._accept(ready, key)

    def _refusal(self, proposal: Proposal) -> Answer | None:
        now_us = self.transaction.now_us
        made_us = id_time_us(proposal.id)
        if made_us is None or abs(made_us - now_us) > DAY_US:
            return _refused(proposal, "ID_TIME_OUT_OF_RANGE", "the id was not made within a day of now")
        if proposal.accept_until_us is not None and self.broker_now_us > proposal.accept_until_us:
            return _refused(proposal, "ACCEPT_UNTIL_PASSED", "it came after the moment it named itself")
        return None

    def _same_again(self, proposal: Proposal, stands: Head) -> Answer:
        """The first answer once more, to whom it was given."""
        if stands.request_digest != proposal.request_digest or stands.client != proposal.client:
            return _refused(proposal, "ID_CONFLICT", "this id is taken")
        events = self.transaction.events([stands.stream]).get(stands.stream, [])
        if events and events[-1].type == ToolExecutionRejected.__name__:
            reason = Reason.model_validate(events[-1].body()["reason"])
            return _refused(proposal, reason.code, reason.sentence)
        return Answer(invocation_id=proposal.id, status="duplicate")

    def _key_again(self, proposal: Proposal, owner: KeyOwner) -> Answer:
        if owner.request_digest != proposal.request_digest:
            return _refused(proposal, "KEY_REUSED", "this idempotency key was used with other content")
        stream = invocation_stream(owner.invocation_id)
        if stream not in self.heads:
            self.heads.update(self.transaction.heads([stream]))
        return Answer(invocation_id=owner.invocation_id, status="duplicate")

    def _accept(self, ready: Draft, key: KeyName | None) -> Answer | None:
        proposal = ready.proposal
        session = self._session(proposal)
        until_us = deadline_us(proposal, self.transaction.now_us)
        requested, written = ready.requested, ready.written
        if until_us:
            requested = requested.model_copy(update={"deadline_us": until_us})
            written = requested.to_bytes()
        stage = _stage_of(proposal)
        head = first_head(ready, until_us, is_first=stage not in self.busy)
        cause = proposal.cause or f"submission:{proposal.id}"
        event = new_event(requested, cause=cause, actor=f"client:{proposal.client}", written=written)
        decision = self.gate.judge(self._case(ready, session), self.epoch)
        contract = ready.known.contract if ready.known else None
        cause = f"invocation:{proposal.id}@1"
        self.matters.append(_matters.made(head, requested, contract, decision, prior=(event,), cause=cause))
        self.heads[head.stream] = head
        if decision.kind is DecisionKind.REFUSED:
            return _rejected(proposal, decision)
        self._enter(proposal, session)
        self._stand(head, key)
        return None

    def _stand(self, head: Head, key: KeyName | None) -> None:
        """What an accepted one means for those after it; a refused one binds and holds nothing."""
        self.busy.add(head.stage_key)
        if head.guards_twins:
            self.twins.setdefault(head.action_digest, head.id)
        if key is not None:
            self.owners[key] = KeyOwner(head.id, head.request_digest)
            self.bindings.append((key, self.owners[key]))

    def _session(self, proposal: Proposal) -> SessionFacts:
        """The session's facts; of one that nobody opened, those that an acceptance will open it with."""
        stream = session_stream(proposal.tenant, proposal.session)
        return self.sessions.get(stream) or SessionFacts(IMPLICIT_MODE, proposal.client, closed=False)

    def _enter(self, proposal: Proposal, session: SessionFacts) -> None:
        """Open the session with the first proposal that is accepted in it; a refused one takes no name."""
        stream = session_stream(proposal.tenant, proposal.session)
        if stream in self.sessions:
            return
        self.sessions[stream] = session
        self.openings.append(
            opening(
                proposal.tenant,
                proposal.session,
                session.mode,
                client=session.client,
                opened_by=f"client:{proposal.client}",
                implicit=True,
                cause=f"submission:{proposal.id}",
            )
        )

    def _case(self, ready: Draft, session: SessionFacts) -> Case:
        digest = ready.requested.action_digest
        return case_of(
            ready.requested,
            ready,
            session,
            twin=self.twins.get(digest),
            denied_by=self.denials.get(digest),
        )

    def write(self) -> dict[str, Head]:
        """Append everything, bind keys; returns the heads of all invocations the batch was about."""
        appends = self.clerk.write(self.matters, now_us=self.transaction.now_us)
        lost = self.transaction.append([*self.openings, *appends])
        if lost:
            # The keys of the transaction cover every stream of it, so nobody else can have written them.
            raise AssertionError(f"streams moved under their own locks: {sorted(map(str, lost))}")
        for key, owner in self.bindings:
            self.transaction.bind_key(key, owner)
        heads = [append.head for append in appends if append.head is not None]
        self.pools = {head.pool for head in heads if head.phase == "queued" and head.ready}
        return {stream.id: head for stream, head in self.transaction.heads(self.heads).items()}


def case_of(
    requested: ToolInvocationRequested,
    ready: Draft,
    session: SessionFacts,
    *,
    twin: str | None,
    denied_by: str | None,
) -> Case:
    """The case of a proposal that was never judged before."""
    return _cases.made(
        tool=requested.tool,
        contract=ready.known.contract if ready.known else None,
        arguments=ready.proposal.arguments,
        arguments_fault=ready.proposal.arguments_fault,
        schema_faults=ready.faults,
        mode=session.mode,
        asked_mode=requested.mode,
        session_closed=session.closed,
        session_foreign=session.client != requested.client,
        twin=twin,
        denied_by=denied_by,
        deadline_passed=False,
    )


def _refused(proposal: Proposal, code: str, sentence: str) -> Answer:
    return Answer(invocation_id=proposal.id, status="refused", code=code, sentence=sentence)


def _rejected(proposal: Proposal, decision: Decision) -> Answer:
    reason = decision.reasons[0]
    return Answer(
        invocation_id=proposal.id,
        status="refused",
        phase="done",
        code=reason.code,
        sentence=reason.sentence,
    )
