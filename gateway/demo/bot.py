"""An approval bot: a process of its own with a key of its own, which decides from the frozen snapshot alone.

It grants running this repository's tests, and denies every other program. It never sees the proposal itself,
and its answers count because governance knows its public key.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence

from gateway.embedded.directory import DataDirectory
from gateway.store import open_ledger
from governance.docket import load_dockets
from governance.ledger import Ledger
from interlock.adapters.ed25519 import Ed25519Signer
from interlock.adapters.request_queue import RequestQueue
from interlock.approval import ApprovalSnapshot, Vote
from interlock.canonical import digest_of
from interlock.event import StreamKind
from interlock.phase import Phase
from interlock.stopping import Stopping

NAME = "test-bot"
POLL_SECONDS = 0.05
GRANTED_ARGV = ("python3", "-m", "unittest")


def decide(snapshot: ApprovalSnapshot) -> tuple[bool, str]:
    """Whether this bot grants what a snapshot asks for, and why not."""
    argv = tuple(snapshot.arguments.get("argv", ())) if isinstance(snapshot.arguments, Mapping) else ()
    if snapshot.tool == "shell.run" and argv[: len(GRANTED_ARGV)] == GRANTED_ARGV:
        return True, ""
    return False, f"only {' '.join(GRANTED_ARGV)} is granted here"


def answer(snapshot: ApprovalSnapshot, signer: Ed25519Signer) -> Vote:
    """The bot's signed answer over one snapshot."""
    granted, reason = decide(snapshot)
    vote = Vote(
        invocation_id=snapshot.invocation_id,
        approver=NAME,
        decision="approve" if granted else "deny",
        decision_id=digest_of([NAME, snapshot.terms.digest]),
        terms_digest=snapshot.terms.digest,
        reason=reason,
        kid=signer.kid,
    )
    return vote.model_copy(update={"signature": signer.sign(vote.signed_bytes()).hex()})


def parked(ledger: Ledger, session: str) -> Iterator[ApprovalSnapshot]:
    """The snapshots of one session that wait for an answer."""
    with ledger.read() as view:
        kind, phase = StreamKind.INVOCATION.value, Phase.AWAITING_APPROVAL.value
        heads = view.heads_of(kind, phase=phase, session=session, limit=100)
        dockets = load_dockets(view, [head.id for head in heads])
    for docket in dockets.values():
        if docket.request is not None and not docket.votes:
            yield docket.request.snapshot


def serve(directory: DataDirectory, session: str, signer: Ed25519Signer, stopping: Stopping) -> None:
    """Answer whatever is parked in one session until stopped; what it may leave to a person it leaves."""
    ledger = open_ledger(directory, read_only=True)
    answered: set[str] = set()
    requests = RequestQueue.at(directory.broker_client_url)
    try:
        while not stopping.is_set():
            for snapshot in parked(ledger, session):
                if snapshot.terms.digest not in answered and not is_left_to_a_person(snapshot):
                    requests.vote(answer(snapshot, signer))
                    answered.add(snapshot.terms.digest)
            stopping.wait(POLL_SECONDS)
    finally:
        ledger.close()


def is_left_to_a_person(snapshot: ApprovalSnapshot) -> bool:
    """Whether the bot says nothing: it leaves one stage of its agent to people."""
    return snapshot.stage == "people"


def _set_at_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def main(arguments: Sequence[str]) -> int:
    """Be the bot until standard input ends; its private key comes on the first line and is never written."""
    path, session = arguments
    signer = Ed25519Signer.from_bytes(bytes.fromhex(sys.stdin.readline().strip()))
    ended = threading.Event()
    threading.Thread(target=lambda: _set_at_end(ended), daemon=True).start()
    serve(DataDirectory.at(path), session, signer, ended)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
