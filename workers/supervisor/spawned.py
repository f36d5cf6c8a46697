"""The pool's side of a spawner: hands over a line for each call, answers its supervisor's questions.

Starts nothing itself and never decides an outcome; when the other side is gone it says what is certain.
"""

from __future__ import annotations

import array
import os
import select
import socket
import time
from types import TracebackType

from workers.supervisor.channel import CALL, GO, NO, OUTCOME, READY, STOP, TAKEN, Channel, LineClosedError
from workers.supervisor.port import BeforeEffect, Call, Failed, NotStarted, Outcome, ShouldStop
from workers.supervisor.report import decode_outcome, encode_call
from workers.supervisor.watch import TICK_MS


class SpawnedSupervisor:
    """The pool's side: carries out calls through the spawner. Safe for threads and for forked pools."""

    def __init__(self, control: socket.socket, spawner_pid: int) -> None:
        self._control = control
        self.spawner_pid = spawner_pid

    def execute(
        self, call: Call, should_stop: ShouldStop, before_effect: BeforeEffect | None = None
    ) -> Outcome:
        """See `Supervisor.execute`. Without a living spawner the outcome is NotStarted."""
        mine, theirs = socket.socketpair()
        with mine:
            with theirs:
                if not _send_line(self._control, theirs):
                    return NotStarted(
                        "SUPERVISOR_LOST", "the pool's spawner is gone; the pool must be restarted"
                    )
            return _Conversation(Channel(mine), should_stop, before_effect).outcome_of(call)

    def is_alive(self) -> bool:
        """Whether the spawner still takes requests; a pool whose spawner is gone has to end."""
        poller = select.poll()
        poller.register(self._control, 0)
        return not poller.poll(0)

    def close(self) -> None:
        """Lets the spawner end. Executions that run go on to their end."""
        self._control.close()

    def __enter__(self) -> SpawnedSupervisor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        os.waitpid(self.spawner_pid, 0)


class _Conversation:
    """One call's exchange with its supervisor."""

    def __init__(self, channel: Channel, should_stop: ShouldStop, before_effect: BeforeEffect | None) -> None:
        self._channel = channel
        self._should_stop = should_stop
        self._before_effect = before_effect
        self._has_gone = False
        self._reason: str | None = None
        self._has_stopped = False

    def outcome_of(self, call: Call) -> Outcome:
        try:
            self._channel.send(CALL, call=encode_call(call))
            while True:
                frame = self._channel.receive(TICK_MS)
                if frame is None:
                    forbidden = self._tick(call)
                    if forbidden is not None:
                        return forbidden
                elif frame["frame"] == READY:
                    self._answer_ready()
                elif frame["frame"] == OUTCOME:
                    return self._taken(decode_outcome(frame["outcome"]))
        except LineClosedError:
            return self._lost()

    def _answer_ready(self) -> None:
        self._reason = self._reason or self._should_stop()
        if self._reason is not None:
            self._channel.send(NO, code="CANCELLED_BEFORE_START", reason=self._reason)
        elif self._before_effect is not None and not self._before_effect():
            self._channel.send(
                NO, code="CLAIM_NOT_HELD", reason="the claim did not stand just before the effect"
            )
        else:
            self._has_gone = True
            self._channel.send(GO)

    def _tick(self, call: Call) -> NotStarted | None:
        self._reason = self._reason or self._should_stop()
        if not self._has_gone:
            # Without GO nothing begins, so whoever has the line by now may be left alone with it.
            return self._forbidden(call)
        if self._reason is not None and not self._has_stopped:
            self._has_stopped = True
            self._channel.send(STOP, reason=self._reason)
        return None

    def _forbidden(self, call: Call) -> NotStarted | None:
        if self._reason is not None:
            return NotStarted("CANCELLED_BEFORE_START", self._reason)
        if time.clock_gettime_ns(time.CLOCK_BOOTTIME) >= call.start_by_boottime_ns:
            return NotStarted("START_BY_PASSED", "no supervisor was ready in time")
        return None

    def _taken(self, outcome: Outcome) -> Outcome:
        try:
            self._channel.send(TAKEN)
        except LineClosedError:
            return outcome  # We have it, whatever became of the one who brought it.
        return outcome

    def _lost(self) -> Outcome:
        if self._has_gone:
            return Failed("SUPERVISOR_LOST", "the supervisor ended without an outcome", began=True)
        return NotStarted("SUPERVISOR_LOST", "the supervisor ended before the effect could begin")


def _send_line(control: socket.socket, line: socket.socket) -> bool:
    """Hands the supervisor's end of a line over; False when nobody is there to take it."""
    rights = array.array("i", [line.fileno()])
    try:
        control.sendmsg([b"!"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    except OSError:
        return False
    return True
