"""Everything governance needs around one ledger, for tests: real gate, real keys, a clock moved by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from governance.adapters.aes_sealer import AesSealer
from governance.cancel import Cancelled, cancel
from governance.catalogue import add_tools
from governance.decide import Clerk
from governance.docket import Docket, load_dockets
from governance.gate import Gate, default_steps
from governance.grant import Grant
from governance.ledger import Due, Head, Ledger
from governance.line import Line
from governance.memory_ledger import InMemoryLedger
from governance.principal import LOCAL_OPERATOR, register
from governance.propose import Accepted, Propose
from governance.session import open_session
from governance.toolbox import Toolbox
from governance.vote import cast
from interlock.adapters.ed25519 import Ed25519Signer, is_signed_by
from interlock.answer import Answer
from interlock.approval import Vote
from interlock.clock import ManualClock
from interlock.contract import Effects, EffectScope, Tool
from interlock.event import PrincipalRegistered, StoredEvent, evidence_stream, invocation_stream
from interlock.fault import NoFaults
from interlock.hint import Hint
from interlock.identifier import new_id
from interlock.proposal import Proposal
from interlock.reduce import fold
from interlock.settings import Settings
from interlock.state import ToolInvocationRecord
from interlock.tier import SessionMode, Tier, ToolCapability

OBJECT: dict[str, Any] = {"type": "object", "properties": {"value": {}}}
TEXT: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
SECRET: dict[str, Any] = {
    "type": "object",
    "properties": {"user": {"type": "string"}, "password": {"type": "string", "sensitive": True}},
}

TOOLS = (
    Tool(
        name="echo", parameters=OBJECT, effects=Effects(read_only=True, idempotent=True, deterministic=True)
    ),
    Tool(
        name="note",
        parameters=TEXT,
        tier=Tier.T2,
        capabilities=(ToolCapability.FILE_WRITE,),
        effect_scope=EffectScope.WORKSPACE,
    ),
    Tool(name="login", parameters=SECRET, effects=Effects(idempotent=True)),
    Tool(
        name="pay",
        parameters={"type": "object", "properties": {"amount": {"type": "integer"}}},
        tier=Tier.T4,
        effect_scope=EffectScope.EXTERNAL,
    ),
)


def real_now_us() -> int:
    """Ids carry their time, so a driven clock starts near it."""
    from interlock.identifier import id_time_us

    return id_time_us(new_id()) or 0


@dataclass
class Court:
    """One installation's governance over one ledger."""

    clock: ManualClock = field(default_factory=lambda: ManualClock(real_now_us()))
    settings: Settings = field(default_factory=Settings)
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = InMemoryLedger(self.clock)
        self.build()

    def build(self) -> None:
        """Make the parts anew over the ledger that stands."""
        self.signer = Ed25519Signer.generate()
        self.sealer = AesSealer(bytes(32))
        self.line = Line(self.settings)
        toolbox, gate = Toolbox(self.ledger), Gate(default_steps(), "test")
        clerk = Clerk(self.signer, self.settings)
        self.propose = Propose(self.ledger, toolbox, gate, clerk, self.line, self.sealer, NoFaults())
        self.grant = Grant(self.ledger, toolbox, gate, clerk, self.line, self.sealer, NoFaults())
        add_tools(
            self.ledger, [tool.model_copy(update={"catalogue": "builtin"}) for tool in TOOLS], added_by="test"
        )

    def open(self, session: str, mode: SessionMode, client: str = "local") -> None:
        """Open a session of the tests' tenant."""
        assert open_session(self.ledger, "default", session, mode, client=client, opened_by="test") is None

    def approver(self, name: str = LOCAL_OPERATOR, person: str | None = None, **rights: Any) -> None:
        """Register somebody who may answer everything, unless told otherwise."""
        payload = PrincipalRegistered(
            role="approver",
            person=person or name,
            tiers=rights.get("tiers", ("T0", "T1", "T2", "T3", "T4")),
            tools=rights.get("tools", ("*",)),
            public_key=rights.get("public_key", ""),
            tenant=rights.get("tenant", "default"),
        )
        register(self.ledger, name, payload, by="operator:test")

    def proposal(self, tool: str, arguments: dict[str, Any] | None, **more: Any) -> Proposal:
        """A proposal of the local client for subject `agent`."""
        given = {"session": "s", "stage": "g", "subject": "agent", "id": new_id(), **more}
        client = given.pop("client", "local")
        proposal = Proposal(tool=tool, arguments=arguments, **given)
        return proposal.authenticated(client, "default", signed=False)

    def submit(self, *proposals: Proposal) -> Accepted:
        """Accept a batch now."""
        return self.propose.accept(proposals, broker_now_us=self.clock.now_us())

    def say(self, tool: str, arguments: dict[str, Any] | None, **more: Any) -> Answer:
        """Propose one call and return its answer."""
        return self.submit(self.proposal(tool, arguments, **more)).answers[0]

    def head(self, invocation_id: str | None) -> Head:
        """Where one invocation stands."""
        assert invocation_id is not None
        stream = invocation_stream(invocation_id)
        with self.ledger.read() as view:
            return view.heads([stream])[stream]

    def due(self, invocation_id: str | None) -> Due | None:
        """What one invocation waits for."""
        assert invocation_id is not None
        stream = invocation_stream(invocation_id)
        with self.ledger.read() as view:
            return view.due_of([stream]).get(stream)

    def types(self, invocation_id: str | None) -> list[str]:
        """The types of one invocation's events, in order."""
        assert invocation_id is not None
        stream = invocation_stream(invocation_id)
        with self.ledger.read() as view:
            return [event.type for event in view.events([stream]).get(stream, [])]

    def evidence(self, invocation_id: str | None) -> list[StoredEvent]:
        """The evidence beside one invocation."""
        assert invocation_id is not None
        stream = evidence_stream(invocation_id)
        with self.ledger.read() as view:
            return view.events([stream]).get(stream, [])

    def docket(self, invocation_id: str | None) -> Docket:
        """One invocation read back."""
        assert invocation_id is not None
        with self.ledger.read() as view:
            return load_dockets(view, [invocation_id])[invocation_id]

    def record(self, invocation_id: str | None, session: str = "s") -> ToolInvocationRecord:
        """The folded record of one invocation."""
        assert invocation_id is not None
        with self.ledger.read() as view:
            record = fold(session, view.session_events(session)).record(invocation_id)
        assert record is not None
        return record

    def vote_of(
        self, invocation_id: str | None, decision: Literal["approve", "deny"] = "approve", **more: Any
    ) -> Vote:
        """An answer to the question that waits."""
        request = self.docket(invocation_id).request
        assert request is not None
        given = {
            "approver": LOCAL_OPERATOR,
            "decision_id": new_id(),
            "terms_digest": request.snapshot.terms.digest,
            **more,
        }
        return Vote(invocation_id=request.snapshot.invocation_id, decision=decision, **given)

    def cast(self, vote: Vote, *, trusted: bool = True) -> str | None:
        """Cast a vote; the code where it does not count."""
        reason = cast(self.ledger, vote, verify=is_signed_by, trusted=trusted)
        return None if reason is None else reason.code

    def review(self, *invocation_ids: str | None) -> Sequence[Hint]:
        """Let governance look."""
        return self.grant.review([identifier for identifier in invocation_ids if identifier is not None])

    def cancel(self, invocation_id: str | None) -> Cancelled | None:
        """Cancel one invocation."""
        assert invocation_id is not None
        return cancel(self.ledger, self.line, invocation_id, by="operator:test")
