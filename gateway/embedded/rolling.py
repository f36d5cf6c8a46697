"""A rolling restart: one role after the other, each replaced before it is asked to stop.

It says what is to take over and what is to go; starting, asking and ending processes is the tree's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from gateway.embedded.member import Member

ORDER = ("projector", "scheduler", "pool-pure", "pool-fs", "pool-shell", "pool-network", "governor")
"""What reads before what writes, and last what takes work in."""
START_FAILURES_MAX = 3  # of one replacement


class Turn(StrEnum):
    """How far one role is."""

    WAITING = "waiting"
    STARTING = "starting"
    """Its replacement was started, and the old process serves on."""
    DRAINING = "draining"
    """The replacement serves, and the old process finishes what it has."""
    DONE = "done"
    FAILED = "failed"
    """The replacement did not become ready: the old process serves on."""
    LEFT = "left"
    """Its turn did not come: an earlier one failed, or the system stops."""


ENDED = frozenset((Turn.DONE, Turn.FAILED, Turn.LEFT))


@dataclass(slots=True)
class Step:
    """One role's turn. Times are those of the monotonic clock."""

    role: str
    turn: Turn = Turn.WAITING
    old: Member | None = None
    new: Member | None = None
    old_pid: int | None = None
    began_at: float = 0.0
    ready_at: float | None = None
    ended_at: float | None = None

    def begin(self, old: Member, new: Member, now: float) -> None:
        """The replacement is about to be started."""
        self.old, self.new, self.old_pid = old, new, old.pid
        self.turn, self.began_at = Turn.STARTING, now

    def take_over(self, now: float) -> None:
        """The replacement serves."""
        self.turn, self.ready_at = Turn.DRAINING, now

    def end(self, turn: Turn, now: float) -> None:
        """Its turn is over."""
        self.turn, self.ended_at = turn, now

    def describe(self) -> dict[str, object]:
        """What `status` shows of it; milliseconds, null for what did not happen."""
        drained_from = self.ready_at if self.turn is Turn.DONE else None
        return {
            "role": self.role,
            "state": self.turn.value,
            "old_pid": self.old_pid,
            "new_pid": None if self.new is None else self.new.pid,
            "ready_ms": _between_ms(self.began_at, self.ready_at),
            "drained_ms": _between_ms(drained_from, self.ended_at),
        }


@dataclass(slots=True)
class RollingRestart:
    """The turns of one restart, in their order."""

    steps: Sequence[Step]
    ready_seconds: float
    """How long a replacement may take to become ready."""
    number: int = 1
    _left: list[Step] = field(init=False)

    def __post_init__(self) -> None:
        self._left = list(self.steps)

    @property
    def current(self) -> Step | None:
        """Whose turn it is; None when all are over."""
        while self._left and self._left[0].turn in ENDED:
            del self._left[0]
        return self._left[0] if self._left else None

    def __iter__(self) -> Iterator[Member]:
        """The process that is to take over, while it does not."""
        step = self.current
        if step is not None and step.turn is Turn.STARTING and step.new is not None:
            yield step.new

    @property
    def due(self) -> list[float]:
        """When to look again at the latest."""
        step = self.current
        is_starting = step is not None and step.turn is Turn.STARTING
        return [step.began_at + self.ready_seconds] if step is not None and is_starting else []

    def go_on(
        self, now: float, members: MutableMapping[str, Member], retire: Callable[[Member], None]
    ) -> None:
        """As far as it goes by now; `members` are those that serve, `retire` asks a process to stop."""
        while (step := self.current) is not None:
            before = step.turn
            if before is Turn.WAITING:
                self._begin(step, members.get(step.role), now)
            elif before is Turn.STARTING:
                self._look_at(step, now, members, retire)
            elif step.old is None or step.old.pid is None:
                step.end(Turn.DONE, now)
            if step.turn is before:
                return

    @staticmethod
    def _begin(step: Step, old: Member | None, now: float) -> None:
        if old is None:
            step.end(Turn.LEFT, now)  # removed meanwhile
        else:
            new = Member(old.role, start_at=now, backoff_seconds_max=old.backoff_seconds_max)
            step.begin(old, new, now)

    def _look_at(
        self, step: Step, now: float, members: MutableMapping[str, Member], retire: Callable[[Member], None]
    ) -> None:
        old, new = step.old, step.new
        assert old is not None
        assert new is not None
        if new.is_ready:
            step.take_over(now)
            new.restarts = old.restarts
            members[step.role] = new
            retire(old)
        elif new.failures_in_a_row >= START_FAILURES_MAX or now >= step.began_at + self.ready_seconds:
            step.end(Turn.FAILED, now)
            self.leave(now)
            retire(new)

    def leave(self, now: float) -> list[Member]:
        """No further turns; what was started and does not serve."""
        coming = [member for member in self if member.pid is not None]
        for step in self._left:
            if step.turn in (Turn.WAITING, Turn.STARTING):
                step.end(Turn.LEFT, now)
                if step.new is not None:
                    step.new.start_at = None
        return coming

    def describe(self) -> dict[str, object]:
        """What `status` shows."""
        steps = [step.describe() for step in self.steps]
        return {"number": self.number, "over": self.current is None, "roles": steps}


def in_order(members: Iterable[Member], wanted: Sequence[str]) -> list[str]:
    """The names to restart, in a sensible order: of these names and kinds, or of all when none is said.

    Raises KeyError with the first name that is none, ValueError with one that has to run alone.
    """
    roles = [member.role for member in members]
    for name in wanted:
        named = [role for role in roles if name in (role.name, role.kind)]
        if not named:
            raise KeyError(name)
        if any(role.alone for role in named):
            raise ValueError(name)
    chosen = [
        role for role in roles if not role.alone and (not wanted or {role.name, role.kind} & set(wanted))
    ]
    place = {kind: at for at, kind in enumerate(ORDER)}
    return [role.name for role in sorted(chosen, key=lambda role: place.get(role.kind, len(ORDER)))]


def answer_restart(
    asked: Mapping[str, object],
    restart: Callable[[Sequence[str]], RollingRestart],
    known: Iterable[str],
) -> Mapping[str, object]:
    """The answer to `{"do": "restart", "roles": [NAME, …]}`; no names mean all."""
    names = asked.get("roles") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return {"ok": False, "code": "USAGE", "error": "roles are a list of names"}
    try:
        return {"restart": restart(names).describe()}
    except KeyError as error:
        why = f"there is no role {error.args[0]}; there are {', '.join(known)}"
    except ValueError as error:
        why = f"{error} cannot run beside a second of itself: stop the system and start it again"
    return {"ok": False, "code": "USAGE", "error": why}


def _between_ms(began_at: float | None, ended_at: float | None) -> int | None:
    return None if began_at is None or ended_at is None else round((ended_at - began_at) * 1_000)
