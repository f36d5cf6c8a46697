"""Starts `up`, or one role, with safeties taken out, so that a test sees the checker find what follows.

For the harness only: `sabotage.py WHAT[,WHAT] up|ROLE DIR`. What is taken out is replaced after root was
given up and before anything is forked; the product itself has no switch for any of it. An attack, which the
whole product withstands, is named beside the safety that it is meant for.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gateway import start
from gateway.embedded import up as embedded
from gateway.embedded.directory import DataDirectory
from gateway.embedded.directory import prepare as made_ready
from tests.support.wait import until

LATE_BATCHES = 3
POISON = "poison"


def claim_check() -> None:
    """A claim stands whatever became of its invocation since it was judged, and nobody looks before."""
    from governance.execution import Execution, attempt
    from workers.claim import Claiming

    def judged(self: Any, transaction: Any, claimant: Any, attempts: Sequence[Any]) -> list[Any]:
        heads = transaction.heads(one.stream for one in attempts)
        now_us, epoch = transaction.now_us, transaction.epoch()
        return [
            (one, attempt.attempt_step(self.settings, now_us, epoch, heads[one.stream], claimant, one))
            for one in attempts
            if one.stream in heads
        ]

    def prepare(self: Any, invocation_ids: Sequence[str]) -> list[Any]:
        prepared: list[Any] = []
        for found in self._execution.load(invocation_ids).values():
            self._judge(found, prepared)
        return prepared

    replace_in(Execution, "_judged", judged)
    replace_in(Claiming, "prepare", prepare)


def permit_check() -> None:
    """Whatever carries a permit is run."""
    from workers import claim

    replace_in(claim, "mismatch", lambda *_: None)


def forged_permits() -> None:
    """Attack: permits are signed by a key that is not governance's."""
    from gateway.parts import Parts
    from governance.keys import KeyPurpose
    from interlock.adapters.ed25519 import Ed25519Signer

    signer = Parts.signer

    def forged(self: Parts, purpose: KeyPurpose) -> Ed25519Signer:
        return Ed25519Signer.generate() if purpose is KeyPurpose.GOVERNANCE else signer(self, purpose)

    replace_in(Parts, "signer", forged)


def poison() -> None:
    """Attack: one computation ends the process that runs it."""
    from workers.tools import pure

    echo = pure.echo

    def deadly(arguments: Mapping[str, Any]) -> dict[str, Any]:
        if arguments["value"] == POISON:
            with open(os.environ["INTERLOCK_FAULT_LOG"], "a", encoding="ascii") as log:
                log.write(f"{POISON} 1 kill {os.getpid()}\n")
            os.kill(os.getpid(), signal.SIGKILL)
        return echo(arguments)

    replace_in(pure, "echo", deadly)


def sweep() -> None:
    """Nobody looks at what fell due."""
    from scheduler.sweep import Sweep

    replace_in(Sweep, "step", lambda _: 0)


def dedupe() -> None:
    """What was folded before is folded again."""
    from interlock.projection import ToolProjector
    from interlock.reduce import REDUCER_VERSION, DefaultToolReducer
    from workers.project import StreamProjector

    reduce = DefaultToolReducer.apply

    def reduced(self: Any, record: Any, event: Any) -> Any:
        if record is not None and event.kind == "invocation" and event.version <= record.version:
            record = replace(record, version=event.version - 1)
        return reduce(self, record, event)

    def apply(self: Any, events: Sequence[Any], before: Any = None) -> Any:
        before = before or self._projection.checkpoint()
        self._know(before)
        batch = self._fold(events)
        after = before._replace(
            seq=max(before.seq, events[-1].seq),
            reducer_version=REDUCER_VERSION,
            incarnation=self._incarnation,
            hash=events[-1].hash,
        )
        if not self._projection.store(before, after, list(batch.changed.values()), batch.stopped):
            return None
        self._learn(after, batch)
        return after

    def events_of(self: Any, checkpoint: Any, entries: Sequence[Any]) -> list[Any]:
        first = min([checkpoint.seq, *(entry.seq - 1 for entry in entries)])
        with self._ledger.read() as view:
            return list(view.range(first, self._settings.batch))

    replace_in(DefaultToolReducer, "apply", reduced)
    replace_in(ToolProjector, "apply", apply)
    replace_in(StreamProjector, "_events", events_of)
    replace_in(StreamProjector, "_up_to_gap", lambda _self, _seq, events: events)


def doubled_entries() -> None:
    """Attack: the stream brings what was read before once more."""
    from workers import project

    entries = project._Hearing.entries

    def again(self: Any, after: int, wait_seconds: float) -> list[Any]:
        return list(entries(self, max(0, after - 20), wait_seconds))

    replace_in(project._Hearing, "entries", again)


def compare_and_set() -> None:
    """A checkpoint moves forward whoever moved it meanwhile, and what came with it is stored."""
    from sqlalchemy import update

    from workers.adapters import sqlite_projection
    from workers.adapters.views_file import CHECKPOINT

    def move(connection: Any, before: Any, after: Any) -> bool:
        values = {name: getattr(after, name) for name in ("seq", "reducer_version", "incarnation", "hash")}
        mine = (
            CHECKPOINT.c.name == before.name,
            CHECKPOINT.c.epoch == before.epoch,
            CHECKPOINT.c.seq < after.seq,
        )
        connection.execute(update(CHECKPOINT).where(*mine).values(**values))
        return True

    replace_in(sqlite_projection, "_move", move)


def late_batches() -> None:
    """Attack, for a second projector: some batches are stored only when the first one has long gone past."""
    from interlock.event import Stream, invocation_stream
    from workers.project import StreamProjector

    fold = StreamProjector._fold
    late: list[str] = []

    def is_past(self: Any, stream: Stream) -> bool:
        with self._ledger.read() as view:
            events = view.events([stream])[stream]
        seq = self._projection.checkpoint().seq
        return bool(events[-1].type == "ToolExecutionCompleted" and events[-1].seq <= seq)

    def fold_late(self: Any, checkpoint: Any, events: Sequence[Any]) -> Any:
        begun = [event for event in events if event.type == "ToolInvocationRequested"]
        if begun and begun[-1].body()["tool"] == "echo" and len(late) < LATE_BATCHES:
            stream = invocation_stream(begun[-1].stream_id)
            if not is_past(self, stream):
                until(lambda: is_past(self, stream), 10, "the first projector has gone past")
                late.append(stream.id)
                Path(os.environ["INTERLOCK_LATE_LOG"]).write_text("\n".join(late))
        return fold(self, checkpoint, events)

    replace_in(StreamProjector, "_fold", fold_late)


SABOTAGES: Mapping[str, Callable[[], None]] = {
    made.__name__: made
    for made in (
        claim_check,
        permit_check,
        forged_permits,
        poison,
        sweep,
        dedupe,
        doubled_entries,
        compare_and_set,
        late_batches,
    )
}


def replace_in(owner: Any, name: str, value: Any) -> None:
    """Put `value` in place of what is there; what is not there any more is a mistake of this program."""
    if not hasattr(owner, name):
        raise AttributeError(f"{owner} has no {name} to take out")
    setattr(owner, name, value)


def main(what: str, role: str, data: str) -> int:
    """Start with these taken out; the exit status."""
    directory = DataDirectory.at(data)
    # Both come after root was given up, and before anything is forked.
    up, prepare = embedded.up, made_ready

    def take_out() -> None:
        for name in filter(None, what.split(",")):
            SABOTAGES[name]()

    def sabotaged_up(directory: Any, roles: Any, preload: Any, environment: Any, **rest: Any) -> int:
        def preload_and_take_out() -> None:
            preload()
            take_out()

        return up(directory, roles, preload_and_take_out, environment, **rest)

    def prepare_and_take_out(directory: Any) -> None:
        prepare(directory)
        take_out()

    if role == "up":
        replace_in(start, "up", sabotaged_up)
        return start.run_up(directory, os.environ)
    replace_in(start, "prepare", prepare_and_take_out)
    return start.run_role(role, directory, os.environ)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
