"""Calls on a running system as a plain producer makes them, and the history of what each was told.

A call is sent again under its own id until it is answered; what stays unanswered is unknown, never failed.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from gateway.embedded.directory import DataDirectory
from gateway.reading import open_for_writing, open_reading
from gateway.store import open_ledger
from governance.docket import load_dockets
from governance.ledger import Ledger
from governance.principal import LOCAL_CLIENT, LOCAL_OPERATOR, register
from governance.session import open_session
from interlock.adapters.celery_wire import encode_task
from interlock.adapters.ed25519 import Ed25519Signer
from interlock.adapters.redis_client import connect
from interlock.adapters.request_queue import RequestQueue
from interlock.answer import read_answer
from interlock.approval import ApprovalSnapshot, Vote
from interlock.canonical import JsonObject, digest_of
from interlock.errors import InterlockError, RetryLaterError
from interlock.event import PrincipalRegistered, StreamKind
from interlock.identifier import new_id
from interlock.phase import Phase
from interlock.proposal import PROPOSE_QUEUE, PROPOSE_TASK, REPLY_PREFIX
from interlock.tier import SessionMode
from tests.support.backlog import OPEN_PHASES, held_of

TENANT = "default"
BOT = "crash-bot"
ANSWER_SECONDS = 40.0
RESEND_SECONDS = 1
BEGUN = "begun-"
"""Begins the name of the file by which a slow program says that it runs."""


class Fate(StrEnum):
    """What a call's caller knows."""

    OK = "ok"
    """Accepted, says the answer."""
    FAIL = "fail"
    """Refused, says the answer."""
    UNKNOWN = "unknown"


class Verdict(StrEnum):
    """What is to become of a call that is parked."""

    NONE = "none"
    APPROVE = "approve"
    DENY = "deny"
    LEAVE = "leave"


@dataclass
class Call:
    """One call: what was asked, and what its caller was told."""

    tool: str
    arguments: JsonObject
    session: str
    stage: str
    nonce: str = ""
    """What its effect writes; "" for a call without one."""
    verdict: Verdict = Verdict.NONE
    id: str = field(default_factory=new_id)
    fate: Fate = Fate.UNKNOWN
    code: str = ""
    sent: int = 0
    turned_away: int = 0
    """How often the broker took nothing."""

    @property
    def may_repeat(self) -> bool:
        """Whether the contract lets it run again."""
        return self.tool not in ("shell.run", "fs.write")

    def item(self, reply_to: str) -> bytes:
        """The queue item that proposes it."""
        fields = {
            "id": self.id,
            "tool": self.tool,
            "arguments": self.arguments,
            "session": self.session,
            "stage": self.stage,
        }
        text = json.dumps(fields).encode()
        return encode_task(PROPOSE_TASK, text, queue=PROPOSE_QUEUE, task_id=self.id, reply_to=reply_to)


def echo(session: str, stage: str) -> Call:
    """A call without an effect."""
    return Call("echo", {"value": new_id()}, session, stage)


def listing(session: str, stage: str) -> Call:
    """A call that only reads."""
    return Call("fs.list", {"path": "."}, session, stage)


def writing(session: str, stage: str) -> Call:
    """A call that writes a file of its own."""
    nonce = new_id()
    return Call("fs.write", {"path": f"written-{nonce}", "content": nonce}, session, stage, nonce)


def shell(session: str, stage: str, verdict: Verdict = Verdict.NONE, seconds: float = 0) -> Call:
    """A call whose effect is a line in a file that the system never reads."""
    nonce = new_id()
    pause = f"touch {BEGUN}{nonce}; sleep {seconds}; " if seconds else ""
    script = f"{pause}echo {nonce} >> effects && sync effects"
    return Call("shell.run", {"argv": ["sh", "-c", script]}, session, stage, nonce, verdict)


@dataclass
class Caller:
    """One producer with one connection; used by one thread."""

    directory: DataDirectory
    stopping: threading.Event = field(default_factory=threading.Event)
    _clients: tuple[Redis, Redis] | None = None

    def call(self, call: Call, seconds: float = ANSWER_SECONDS) -> Call:
        """Propose until answered, or unknown."""
        give_up_at = time.monotonic() + seconds
        while call.fate is Fate.UNKNOWN and time.monotonic() < give_up_at and not self.stopping.is_set():
            try:
                self._propose(call)
            except (RedisError, OSError):
                call.turned_away += 1
                self.close()
                self.stopping.wait(0.1)
        return call

    def _propose(self, call: Call) -> None:
        sending, waiting = self._clients or self._connect()
        reply_to = REPLY_PREFIX + call.id
        sending.lpush(PROPOSE_QUEUE, call.item(reply_to))
        call.sent += 1
        found: Any = waiting.brpop([reply_to], timeout=RESEND_SECONDS)
        if not found:
            return
        answer = read_answer(found[1])
        call.fate = Fate.FAIL if answer.status == "refused" else Fate.OK
        call.code = answer.code

    def _connect(self) -> tuple[Redis, Redis]:
        url = self.directory.broker_client_url
        self._clients = connect(url), connect(url, blocking=True)
        return self._clients

    def close(self) -> None:
        """Let go of the connections."""
        for client in self._clients or ():
            client.close()
        self._clients = None


@dataclass
class Mix:
    """Calls of every kind, in several sessions and stages; reproducible by its generator."""

    rng: random.Random
    stages: int = 6
    """How many stages of a session are in use at a time."""
    calls_a_stage: int = 12
    """Then another one takes its place, so that what is held by an unknown outcome holds up no more."""
    sessions: tuple[str, ...] = ("one", "two")
    parked_in: str = "asks"

    def calls(self) -> Iterator[Call]:
        """Calls without end."""
        for number in itertools.count():
            first = number // self.calls_a_stage
            session = self.rng.choice(self.sessions)
            stage = f"stage-{first + self.rng.randrange(self.stages)}"
            kind = self.rng.random()
            if kind < 0.35:
                yield echo(session, stage)
            elif kind < 0.5:
                yield listing(session, stage)
            elif kind < 0.65:
                yield writing(session, stage)
            elif kind < 0.85:
                yield shell(session, stage)
            else:
                yield self._parked()

    def _parked(self) -> Call:
        verdict = self.rng.choices((Verdict.APPROVE, Verdict.DENY, Verdict.LEAVE), (6, 3, 1))[0]
        # Each in a stage of its own: one that nobody answers holds nobody up.
        return shell(self.parked_in, f"stage-{self.rng.randrange(10**9)}", verdict)


def prepare(directory: DataDirectory, mix: Mix) -> Ed25519Signer:
    """Open the sessions and register the bot; its key."""
    signer = Ed25519Signer.generate()
    bot = PrincipalRegistered(
        role="bot",
        person=BOT,
        kid=signer.kid,
        public_key=signer.public_hex,
        tiers=("T0", "T1", "T2", "T3"),
        tools=("*",),
    )
    modes = dict.fromkeys(mix.sessions, SessionMode.OPERATE) | {mix.parked_in: SessionMode.EDIT}
    with open_for_writing(directory) as ledger:
        register(ledger, BOT, bot, by=LOCAL_OPERATOR)
        for session, mode in modes.items():
            open_session(ledger, TENANT, session, mode, client=LOCAL_CLIENT, opened_by=LOCAL_OPERATOR)
    return signer


@dataclass
class Bot:
    """Answers what is parked, over and over until it counts, from the frozen snapshot."""

    directory: DataDirectory
    signer: Ed25519Signer
    verdicts: dict[str, Verdict]

    def run(self, stopping: threading.Event) -> None:
        """Look and answer until stopped."""
        queue = RequestQueue.at(self.directory.broker_client_url)
        while not stopping.wait(0.2):
            # Whatever hurts the system may hurt the bot at any step, the opening of the ledger included.
            with (
                contextlib.suppress(RetryLaterError),
                contextlib.closing(open_ledger(self.directory, read_only=True)) as ledger,
            ):
                self._answer(queue, ledger, stopping)

    def _answer(self, queue: RequestQueue, ledger: Ledger, stopping: threading.Event) -> None:
        while not stopping.wait(0.2):
            for snapshot in self._parked(ledger):
                queue.vote(self._vote(snapshot))

    def _parked(self, ledger: Ledger) -> list[ApprovalSnapshot]:
        with ledger.read() as view:
            kind, phase = StreamKind.INVOCATION.value, Phase.AWAITING_APPROVAL.value
            heads = view.heads_of(kind, phase=phase, limit=10_000)
            dockets = load_dockets(view, [head.id for head in heads if self._answers(head.id)])
        return [docket.request.snapshot for docket in dockets.values() if docket.request and not docket.votes]

    def _answers(self, invocation_id: str) -> bool:
        return self.verdicts.get(invocation_id) in (Verdict.APPROVE, Verdict.DENY)

    def _vote(self, snapshot: ApprovalSnapshot) -> Vote:
        approves = self.verdicts[snapshot.invocation_id] is Verdict.APPROVE
        vote = Vote(
            invocation_id=snapshot.invocation_id,
            approver=BOT,
            decision="approve" if approves else "deny",
            decision_id=digest_of([BOT, snapshot.terms.digest]),
            terms_digest=snapshot.terms.digest,
            kid=self.signer.kid,
        )
        return vote.model_copy(update={"signature": self.signer.sign(vote.signed_bytes()).hex()})


@dataclass
class Traffic:
    """Several producers and the bot, at work beside the test. The history is `calls`."""

    directory: DataDirectory
    mix: Mix
    signer: Ed25519Signer
    producers: int = 4
    pause_seconds: float = 0.02
    backlog_max: int = 0
    """No further call while so many wait or run; 0 for no limit."""
    calls: list[Call] = field(default_factory=list)
    _verdicts: dict[str, Verdict] = field(default_factory=dict)
    _closing: threading.Event = field(default_factory=threading.Event)
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _bot: threading.Thread | None = None
    _too_many: threading.Event = field(default_factory=threading.Event)
    _watch: threading.Thread | None = None

    def __enter__(self) -> Traffic:
        self._bot = threading.Thread(
            target=Bot(self.directory, self.signer, self._verdicts).run, args=(self._over,)
        )
        self._bot.start()
        if self.backlog_max:
            self._watch = threading.Thread(target=self._look_at_backlog)
            self._watch.start()
        source = self.mix.calls()
        for _ in range(self.producers):
            thread = threading.Thread(target=self._produce, args=(source,))
            thread.start()
            self._threads.append(thread)
        return self

    def close(self) -> None:
        """No further calls; those under way are seen through. The bot goes on."""
        self._closing.set()
        for thread in self._threads:
            thread.join()

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """The bot ends too."""
        self._over.set()
        self.close()
        for thread in (self._bot, self._watch):
            if thread is not None:
                thread.join()

    def send(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Further calls of the test's own, seen through one by one."""
        caller = Caller(self.directory)
        try:
            for call in calls:
                self.note(call)
                caller.call(call)
        finally:
            caller.close()
        return calls

    def _look_at_backlog(self) -> None:
        """Say whether there is too much under way, not counting what an unknown outcome holds up."""
        while not self._closing.wait(0.5):
            with contextlib.suppress(InterlockError), open_reading(self.directory) as reading:
                with reading.ledger.read() as view:
                    heads = view.heads_of(StreamKind.INVOCATION.value, limit=1_000_000)
                held = held_of(heads)
                moving = sum(head.phase in OPEN_PHASES and head.id not in held for head in heads)
                (self._too_many.set if moving > self.backlog_max else self._too_many.clear)()

    def _produce(self, source: Iterator[Call]) -> None:
        caller = Caller(self.directory, self._over)
        try:
            while not self._closing.wait(self.pause_seconds):
                if self._too_many.is_set():
                    continue
                with self._turn:
                    call = next(source)
                self.note(call)
                caller.call(call)
        finally:
            caller.close()

    def note(self, call: Call) -> None:
        """Put a call into the history."""
        self._verdicts[call.id] = call.verdict
        self.calls.append(call)
