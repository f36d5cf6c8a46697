"""Sessions: their mode, their owner, whether they still take proposals.

A session's mode is set when it is opened, by a principal that may; a proposal can only lower it for itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from governance.ledger import Append, Head, Ledger, LedgerView
from interlock.canonical import canonical, read_stored
from interlock.decision import Reason
from interlock.event import SessionClosed, SessionOpened, Stream, StreamKind, new_event
from interlock.tier import SessionMode

_SESSION = StreamKind.SESSION.value
IMPLICIT_MODE = SessionMode.OBSERVE
"""The mode of a session that nobody opened: it may read, and everything else asks."""


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What the gate needs to know of a session."""

    mode: SessionMode
    client: str
    closed: bool


def session_stream(tenant: str, session: str) -> Stream:
    """A session's stream; the same name in another tenant is another session."""
    return Stream(_SESSION, f"{tenant}/{session}")


def session_facts(head: Head) -> SessionFacts:
    """The facts a session's head holds."""
    data = read_stored(head.data.encode())
    assert isinstance(data, dict)
    return SessionFacts(SessionMode(str(data["mode"])), str(data["client"]), bool(data["closed"]))


def _head(stream: Stream, tenant: str, session: str, facts: SessionFacts) -> Head:
    data = canonical({"mode": facts.mode.value, "client": facts.client, "closed": facts.closed}).decode()
    phase = "closed" if facts.closed else "open"
    return Head(stream.kind, stream.id, tenant=tenant, session=session, phase=phase, data=data)


def opening(
    tenant: str, session: str, mode: SessionMode, *, client: str, opened_by: str, implicit: bool, cause: str
) -> Append:
    """The append that opens a session."""
    stream = session_stream(tenant, session)
    payload = SessionOpened(
        mode=mode.value, opened_by=opened_by, client=client, implicit=implicit, tenant=tenant
    )
    head = _head(stream, tenant, session, SessionFacts(mode, client, closed=False))
    events = [new_event(payload, cause=cause, actor=opened_by)]
    return Append(stream, 0, events, head=head, tenant=tenant, session=session)


def open_session(
    ledger: Ledger, tenant: str, session: str, mode: SessionMode, *, client: str, opened_by: str
) -> Reason | None:
    """Open a session by name; a Reason where one of that name exists already."""
    append = opening(
        tenant,
        session,
        mode,
        client=client,
        opened_by=opened_by,
        implicit=False,
        cause=f"operator:{opened_by}",
    )
    with ledger.write([str(append.stream)], control=True) as transaction:
        if transaction.append([append]):
            return _exists(transaction, append.stream, session)
        transaction.raise_epoch()
    return None


def _exists(view: LedgerView, stream: Stream, session: str) -> Reason:
    """Why a name is taken: what stands there, and whether anybody chose its mode."""
    facts, opened = session_facts(view.heads([stream])[stream]), view.events([stream])[stream][0].body()
    state = "closed" if facts.closed else "open"
    how = ", opened implicitly by the first proposal that was accepted in it" if opened["implicit"] else ""
    sentence = f"a session {session} exists already: {state}, mode {facts.mode.value}, client {facts.client}"
    return Reason(code="SESSION_EXISTS", sentence=sentence + how)


def close_session(ledger: Ledger, tenant: str, session: str, *, closed_by: str) -> Reason | None:
    """Take no further proposal; what is accepted goes on. A Reason where there is no such session."""
    stream = session_stream(tenant, session)
    with ledger.write([str(stream)], control=True) as transaction:
        head = transaction.heads([stream]).get(stream)
        if head is None:
            return Reason(code="SESSION_UNKNOWN", sentence=f"there is no session {session}")
        facts = session_facts(head)
        if facts.closed:
            return None
        after = _head(stream, tenant, session, SessionFacts(facts.mode, facts.client, closed=True))
        event = new_event(SessionClosed(by=closed_by), cause=f"operator:{closed_by}", actor=closed_by)
        transaction.append(
            [Append(stream, head.version, [event], head=after, tenant=tenant, session=session)]
        )
        transaction.raise_epoch()
    return None


def find_session(view: LedgerView, tenant: str, session: str) -> SessionFacts | None:
    """The facts of one session, None where nobody used it yet."""
    stream = session_stream(tenant, session)
    head = view.heads([stream]).get(stream)
    return None if head is None else session_facts(head)
