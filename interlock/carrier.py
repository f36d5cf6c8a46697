"""Carries what coroutines submit: one thread sends it in portions and hears the answers.

The courier does the protocol; nothing here judges what became of a proposal.
"""

from __future__ import annotations

import threading
import time
from asyncio import Future
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from interlock.client import PORTION_BYTES, PORTION_MAX
from interlock.courier import Courier, Outcome, Portion
from interlock.errors import AcceptanceUnknownError, NotAcceptedError

LISTEN_SECONDS = 0.005
"""How long what is submitted waits for the thread while it listens for other answers."""
LISTEN_SECONDS_MAX = 0.05
"""The same where nobody has answered for a while."""


@dataclass(slots=True, eq=False)
class Carried:
    """One submission, with its id, and where its outcome is awaited."""

    said: Mapping[str, Any]
    future: Future[Outcome | Exception]


Told = list[tuple[Carried, Outcome | Exception]]
"""Submissions with what became of them; an exception that is no outcome is a fault of this program."""


@dataclass(slots=True, eq=False)
class _Load:
    """A portion on its way, and whose proposals these are, in the same order."""

    portion: Portion
    carried: list[Carried]


class ListeningCourier(Courier):
    """A courier whose portions are waited for a moment at a time, and told as far as they are answered."""

    def listen(self, portions: Sequence[Portion], seconds: float) -> None:
        """Send again what is due to be, and hear what comes first within so long."""
        now = time.monotonic()
        for portion in portions:
            if portion.open and now >= portion.again_at:
                self._resend(portion)
                portion.interval *= 2
                portion.again_at = now + portion.interval
        if any(portion.open for portion in portions):
            nearest = min(portion.give_up_at for portion in portions)
            self._hear(max(0.0, min(seconds, nearest - now)))

    def settle(self, load: _Load) -> Told:
        """Take out of the load what is answered; all that is left, once its time is over."""
        if time.monotonic() >= load.portion.give_up_at:
            outcomes, carried = self.finish(load.portion), load.carried
            load.portion.pending, load.carried = [], []
            return list(zip(carried, outcomes, strict=True))
        pairs = list(zip(load.portion.pending, load.carried, strict=True))
        done = [(one, whose) for one, whose in pairs if not one.is_open]
        if not done:
            return []
        open_ones = [(one, whose) for one, whose in pairs if one.is_open]
        load.portion.pending, load.carried = [one for one, _ in open_ones], [who for _, who in open_ones]
        # Nothing of this portion is open, so finishing it waits for nobody.
        answered = Portion([one for one, _ in done], give_up_at=0, again_at=0, interval=0)
        return list(zip([whose for _, whose in done], self.finish(answered), strict=True))


class Carrier:
    """One sending thread for one event loop. `tell` is called in that thread, as outcomes become known."""

    def __init__(self, courier: ListeningCourier, tell: Callable[[Told], None]) -> None:
        self._courier, self._tell = courier, tell
        self._given: SimpleQueue[list[Carried] | None] = SimpleQueue()
        self._loads: list[_Load] = []
        self._thread: threading.Thread | None = None
        self._ended: Callable[[], None] = lambda: None

    def give(self, carried: list[Carried]) -> None:
        """Hand over what was gathered; returns at once."""
        self._given.put(carried)
        if self._thread is None:
            # Not waited for by an interpreter that ends: whoever cares closes the client.
            self._thread = threading.Thread(target=self._run, name="interlock-carrier", daemon=True)
            self._thread.start()

    def end(self, ended: Callable[[], None]) -> bool:
        """Listen no more: what is on its way is told as not known.

        `ended` is called in the thread, as its last step. False where there is no thread to end.
        """
        self._ended = ended
        self._given.put(None)
        return self._thread is not None

    def _run(self) -> None:
        seconds = LISTEN_SECONDS
        while True:
            fresh = self._fresh()
            if fresh is None:
                break
            for portion in _portions(fresh):
                self._begin(portion)
            told = self._heard(LISTEN_SECONDS if fresh else seconds)
            # Where nobody answers for long, nobody is asked so often.
            seconds = LISTEN_SECONDS if told or fresh else min(seconds * 2, LISTEN_SECONDS_MAX)
            if told:
                self._tell(told)
        self._let_go()
        self._ended()

    def _fresh(self) -> list[Carried] | None:
        """All that was given meanwhile; waits for it where nothing is on its way. None: the end."""
        fresh: list[Carried] = []
        may_wait = not self._loads
        while True:
            try:
                given = self._given.get(block=may_wait)
            except Empty:
                return fresh
            if given is None:
                self._tell([(one, unsent(one)) for one in fresh])
                return None
            fresh += given
            may_wait = False

    def _begin(self, carried: list[Carried]) -> None:
        try:
            portion = self._courier.begin([one.said for one in carried])
        except Exception as error:  # noqa: BLE001 - it belongs to whoever submitted, not to this thread
            if len(carried) == 1:
                self._tell([(carried[0], error)])
                return
            # One of them is to blame. An id that is sent again is still one invocation.
            for one in carried:
                self._begin([one])
        else:
            self._loads.append(_Load(portion, carried))

    def _heard(self, seconds: float) -> Told:
        told: Told = []
        try:
            self._courier.listen([load.portion for load in self._loads], seconds)
            for load in self._loads:
                told += self._courier.settle(load)
        except Exception as error:  # noqa: BLE001 - a thread that ended would leave everybody waiting
            told += [(one, error) for load in self._loads for one in load.carried]
            self._forget()
        self._loads = [load for load in self._loads if load.carried]
        return told

    def _let_go(self) -> None:
        self._tell(
            [
                (one, AcceptanceUnknownError(str(one.said["id"])))
                for load in self._loads
                for one in load.carried
            ]
        )
        self._forget()

    def _forget(self) -> None:
        for load in self._loads:
            self._courier.forget(load.portion)
        self._loads = []


def unsent(carried: Carried) -> NotAcceptedError:
    """What became of it where nobody is to send it any more."""
    return NotAcceptedError(str(carried.said["id"]), "the client was closed before it was sent")


def _portions(carried: list[Carried]) -> Iterator[list[Carried]]:
    """Cut by number and by what raw arguments weigh, as a stream of proposals is."""
    portion: list[Carried] = []
    size_bytes = 0
    for one in carried:
        portion.append(one)
        size_bytes += len(one.said.get("arguments_json") or "")
        if len(portion) == PORTION_MAX or size_bytes >= PORTION_BYTES:
            yield portion
            portion, size_bytes = [], 0
    if portion:
        yield portion
