"""The process tree of a running system: starts the roles, restarts what dies, stops all in order.

One thread, one selector, no polling once everything is ready. It imports what the roles share, once, before
it forks them. When the foreground process that it belongs to dies, it ends everything below it at once.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType

from gateway.embedded import kernel
from gateway.embedded.child import fork_role
from gateway.embedded.control import Answer, ControlServer
from gateway.embedded.directory import DataDirectory
from gateway.embedded.error import NotReadyError
from gateway.embedded.member import BACKOFF_SECONDS_MAX, Member, judge_start, stopping_line, wait_seconds
from gateway.embedded.ready import announce_ready, withdraw_ready
from gateway.embedded.remains import end_all
from gateway.embedded.role import Role
from gateway.embedded.rolling import RollingRestart, Step, answer_restart, in_order
from interlock.errors import InterlockError

ECHO_SECONDS = 0.5  # one Ctrl-C may come twice: from the terminal, and passed on by a wrapper
LEFTOVER_SECONDS = 0.8  # for what outlives its role to put its outcome aside
EXIT_OWNER_DIED = 137
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
OWNER_DIED_SIGNAL = signal.SIGUSR1


class ProcessTree:
    """The roles of one system, below this process, which must have no other thread."""

    def __init__(
        self,
        directory: DataDirectory,
        roles: Iterable[Role],
        *,
        owner: kernel.ProcessIdentity,
        version: str,
        url: str | None = None,
        ready_seconds: float = 30.0,
        announce: Callable[[str], None] = lambda _line: None,
        count_running: Callable[[], int] = lambda: 0,
        backoff_seconds_max: float = BACKOFF_SECONDS_MAX,
    ) -> None:
        self._count_running = count_running
        self._directory = directory
        self._backoff_seconds_max = backoff_seconds_max
        self._members = {role.name: self._member(role) for role in roles}
        self._retiring: list[Member] = []  # replaced, and finishing what they have
        self._rolling: RollingRestart | None = None
        self._owner = owner
        self._version = version
        self._url = url
        self._ready_seconds = ready_seconds
        self._announce = announce
        self._began_at = time.monotonic()
        self._is_ready = False
        self._stop_requests = 0
        self._stop_asked_at = 0.0
        self._stages_left: list[int] | None = None  # None until it stops
        self._selector = selectors.DefaultSelector()
        self._woken, self._waking = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._control: ControlServer | None = None

    # What a face may do with a running system.

    def add(self, role: Role) -> None:
        """One more role, started at the next turn; a name that is taken is a ValueError."""
        if role.name in self._members:
            raise ValueError(f"there is a role {role.name} already")
        self._members[role.name] = self._member(role, time.monotonic())

    def remove(self, name: str) -> None:
        """Stop a role, drained, and do not start it again; KeyError when there is none."""
        member = self._members[name]
        member.start_at = None
        if member.pid is None:
            del self._members[name]
        elif member.kill_at is None:
            self._ask_to_stop(member, time.monotonic())

    def restart(self, names: Sequence[str]) -> RollingRestart:
        """Replace these roles, or all, one after the other; each goes on serving until its replacement does.

        Raises KeyError with a name that is none, ValueError with one that has to run alone.
        """
        before = 0 if self._rolling is None else self._rolling.number
        steps = [Step(name) for name in in_order(self._members.values(), names)]
        self._rolling = RollingRestart(steps, self._ready_seconds, before + 1)
        return self._rolling

    def status(self) -> dict[str, object]:
        """What `status` on the control socket answers."""
        return {
            "pid": self._owner.pid,
            "parent_pid": os.getpid(),
            "version": self._version,
            "ready": self._is_ready,
            "stopping": self._stages_left is not None,
            "up_seconds": round(time.monotonic() - self._began_at, 3),
            "roles": [member.describe() for member in self._members.values()],
            "restart": None if self._rolling is None else self._rolling.describe(),
        }

    def request_stop(self) -> None:
        """Stop in order; a second request, not the echo of the first, kills what is left at once."""
        now = time.monotonic()
        if not self._stop_requests or now - self._stop_asked_at >= ECHO_SECONDS:
            self._stop_requests += 1
            self._stop_asked_at = now

    # The life of the tree.

    def run(self, preload: Callable[[], None]) -> int:
        """Run until stopped; the exit status is 0 after an ordered stop, 1 when it never became ready."""
        self._listen()
        status = 0
        try:
            self._start_up(preload)
            self._turn_until(lambda: self._stages_left is not None)
        except InterlockError as error:
            status = 1
            print(error, file=sys.stderr, flush=True)  # noqa: T201 - this process has no other face
        except Exception:  # noqa: BLE001 - the composition root: whatever it was, the roles must end
            status = 1
            traceback.print_exc()
        self._shut_down()
        return status

    def _start_up(self, preload: Callable[[], None]) -> None:
        deadline = self._began_at + self._ready_seconds
        self._schedule(lambda role: role.before_preload)
        self._start_due()
        gc.disable()  # a collection would touch, and so copy, what the roles are to share
        preload()
        if kernel.thread_count() != 1:
            raise NotReadyError(
                "parent", "has threads after the imports, so it cannot fork", self._directory.logs
            )
        gc.freeze()
        gc.enable()
        self._turn_until(self._all_ready, deadline)
        self._schedule(lambda role: not role.before_preload)
        self._turn_until(self._all_ready, deadline)
        if self._stages_left is None:
            self._is_ready = True
            announce_ready(self._directory, self._owner, self._version, self._url)
            with contextlib.suppress(OSError):  # nobody reads our output any more: no reason to end
                self._announce(self._ready_line())

    def _shut_down(self) -> None:
        """Stop stage by stage; nothing that was started lives afterwards."""
        withdraw_ready(self._directory)
        self._begin_stop()
        self._turn_until(lambda: not self._stages_left)
        end_all(LEFTOVER_SECONDS)
        if self._control is not None:
            self._control.close()
        self._say("stopped")

    def _listen(self) -> None:
        signal.signal(OWNER_DIED_SIGNAL, self._owner_died)
        for number in STOP_SIGNALS:
            signal.signal(number, lambda _number, _frame: self.request_stop())
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # wakes the selector, no more
        signal.set_wakeup_fd(self._waking, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*STOP_SIGNALS, signal.SIGCHLD, OWNER_DIED_SIGNAL))
        kernel.adopt_orphans()
        self._selector.register(self._woken, selectors.EVENT_READ, self._drain_wakeups)
        self._control = ControlServer(
            self._directory,
            {
                "status": lambda _asked: self.status(),
                "stop": self._answer_stop,
                "restart": self._answer_restart,
            },
            self._selector,
        )

    # One turn: look, act, wait.

    def _turn_until(self, holds: Callable[[], object], deadline: float | None = None) -> None:
        """Turn until `holds`, or a stop is asked for; NotReadyError past the deadline."""
        while True:
            self._reap()
            self._probe()
            self._kill_overdue()
            self._obey_stop_requests()
            self._go_on_restarting()
            self._start_due()
            if holds() or (deadline is not None and self._stages_left is not None):
                return
            if deadline is not None and self._stages_left is None:
                judge_start(self._members.values(), self._directory, self._ready_seconds, deadline)
            due = [] if self._rolling is None else self._rolling.due
            due += [] if deadline is None else [deadline]
            for key, _ in self._selector.select(wait_seconds(self._processes(), due)):
                key.data()

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                self._note_end(pid, os.waitstatus_to_exitcode(status))

    def _note_end(self, pid: int, exit_code: int) -> None:
        member = next((member for member in self._processes() if member.pid == pid), None)
        if member is None:
            return  # adopted: the child of a role that is gone
        self._forget_ready_descriptor(member)
        asked = member.kill_at is not None
        stays_away = asked or self._is_stopped_stage(member.role)
        member.note_end(exit_code, time.monotonic(), again=not stays_away)
        if member in self._retiring:
            self._retiring.remove(member)
        elif asked and self._stages_left is None and self._members.get(member.role.name) is member:
            del self._members[member.role.name]  # removed while the rest goes on
        elif not stays_away:
            self._say(f"role {member.role.name} ended ({exit_code}) and is started again")

    def _member(self, role: Role, start_at: float | None = None) -> Member:
        return Member(role, start_at=start_at, backoff_seconds_max=self._backoff_seconds_max)

    def _processes(self) -> list[Member]:
        """Whatever may have a process: what serves, what is to take over, and what was replaced."""
        return [*self._members.values(), *(self._rolling or ()), *self._retiring]

    def _probe(self) -> None:
        for member in self._processes():
            if member.pid is not None and not member.is_ready and member.role.probe is not None:
                member.is_ready = member.role.probe(member.pid)

    def _start_due(self) -> None:
        now = time.monotonic()
        for member in self._processes():
            if member.start_at is not None and member.start_at <= now:
                self._start(member, now)

    def _start(self, member: Member, now: float) -> None:
        forked = fork_role(member.role, self._directory, self._parents_only())
        member.note_start(forked.pid, forked.ready_descriptor, now)
        self._selector.register(
            forked.ready_descriptor,
            selectors.EVENT_READ,
            lambda: self._note_ready(member, forked.ready_descriptor),
        )

    def _note_ready(self, member: Member, descriptor: int) -> None:
        if os.read(descriptor, 16):
            member.is_ready = True
        self._forget_ready_descriptor(member)  # at its end without a byte the role closed it, or died

    def _forget_ready_descriptor(self, member: Member) -> None:
        if member.ready_descriptor is not None:
            self._selector.unregister(member.ready_descriptor)
            os.close(member.ready_descriptor)
            member.ready_descriptor = None

    def _parents_only(self) -> tuple[int, ...]:
        """Descriptors that a role must not keep, or the tree's end would go unseen."""
        registered = (key.fd for key in self._selector.get_map().values())
        own = self._selector.fileno() if isinstance(self._selector, selectors.EpollSelector) else None
        return (*registered, self._waking, *(() if own is None else (own,)))

    def _schedule(self, belongs: Callable[[Role], bool]) -> None:
        if self._stages_left is not None:
            return
        for member in self._members.values():
            if belongs(member.role) and member.pid is None:
                member.start_at = time.monotonic()

    def _all_ready(self) -> bool:
        """Whether every essential role that was started, or is about to be, is ready."""
        return all(
            member.is_ready
            for member in self._members.values()
            if member.role.essential and (member.pid is not None or member.start_at is not None)
        )

    def _go_on_restarting(self) -> None:
        if self._rolling is not None and self._is_ready:
            self._rolling.go_on(time.monotonic(), self._members, self._retire)

    def _retire(self, member: Member) -> None:
        """It was replaced, or was to replace and never became ready."""
        member.start_at = None
        if member.pid is not None:
            self._retiring.append(member)
            self._ask_to_stop(member, time.monotonic())

    # Stopping.

    def _obey_stop_requests(self) -> None:
        if self._stop_requests and self._stages_left is None:
            self._begin_stop()
        if self._stop_requests > 1:
            for member in self._processes():
                member.kill_at = 0.0
            self._kill_overdue()
        self._go_to_next_stage()

    def _begin_stop(self) -> None:
        if self._stages_left is None:
            withdraw_ready(self._directory)
            self._say(stopping_line(self._count_running() if self._is_ready else 0))
            self._is_ready = False
            if self._rolling is not None:
                # Also what was to take over only has to stop by now.
                self._retiring += self._rolling.leave(time.monotonic())
            self._stages_left = sorted({member.role.stop_stage for member in self._members.values()})
            self._stop_stage()

    def _go_to_next_stage(self) -> None:
        while self._stages_left and not self._living(self._stages_left[0]):
            del self._stages_left[0]
            self._stop_stage()

    def _stop_stage(self) -> None:
        if not self._stages_left:
            return
        for member in self._members.values():
            if self._is_stopped_stage(member.role):
                member.start_at = None
        for member in self._living(self._stages_left[0]):
            self._ask_to_stop(member, time.monotonic())

    def _living(self, stage: int) -> list[Member]:
        return [m for m in self._processes() if m.role.stop_stage == stage and m.pid is not None]

    def _is_stopped_stage(self, role: Role) -> bool:
        """What is stopped last is still needed, and so started again, while others drain."""
        stages = self._stages_left
        return stages is not None and (not stages or role.stop_stage <= stages[0])

    def _ask_to_stop(self, member: Member, now: float) -> None:
        if member.pid is not None and member.kill_at is None:
            member.kill_at = now + member.role.drain_seconds
            os.kill(member.pid, signal.SIGTERM)

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for member in self._processes():
            if member.pid is not None and member.kill_at is not None and member.kill_at <= now:
                member.kill_at = now + LEFTOVER_SECONDS
                os.kill(member.pid, signal.SIGKILL)

    # Signals and faces.

    def _owner_died(self, _number: int, _frame: FrameType | None) -> None:
        """The foreground process is gone, killed: end everything now, whatever this process was doing."""
        if os.getppid() == self._owner.pid:
            return  # somebody else sent the signal
        for member in self._processes():
            if member.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member.pid, signal.SIGKILL)
        end_all(LEFTOVER_SECONDS)
        with contextlib.suppress(OSError):
            withdraw_ready(self._directory)
            self._directory.control_socket.unlink(missing_ok=True)
        os._exit(EXIT_OWNER_DIED)

    def _drain_wakeups(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._woken, 4096):
                pass

    def _answer_stop(self, _asked: Mapping[str, object]) -> Answer:
        if not self._stop_requests:
            self.request_stop()
        return {"stopping": True}

    def _answer_restart(self, asked: Mapping[str, object]) -> Answer:
        if not self._is_ready or (self._rolling is not None and self._rolling.current is not None):
            why = "a restart goes on" if self._is_ready else "the system is not ready"
            return {"ok": False, "code": "NOT_READY", "error": why}
        return answer_restart(asked, self.restart, self._members)

    def _ready_line(self) -> str:
        seconds = time.monotonic() - self._began_at
        return (
            f"interlock {self._version} is ready after {seconds:.1f} s: {len(self._members)} roles, "
            f"process {self._owner.pid}, data in {self._directory.path}"
        )

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):  # nobody reads it any more: no reason to end
            print(line, file=sys.stderr, flush=True)  # noqa: T201 - this process has no other face
