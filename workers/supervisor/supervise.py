"""A supervisor: owns one execution from the question to the delivered outcome, in a process of its own.

It begins the effect at most once, only with the pool's go and before `start_by`; it retries nothing.
When the pool is gone it ends the tree and leaves the outcome in the orphans' folder.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workers.adapters.bubblewrap import ROOT_REFUSED, lay_out_etc, start_sandboxed
from workers.supervisor.channel import CALL, GO, OUTCOME, READY, TAKEN, Channel, LineClosedError
from workers.supervisor.launch import Child, OwnFunction, start_function
from workers.supervisor.port import (
    UNSANDBOXED,
    Call,
    Completed,
    Failed,
    NotStarted,
    Outcome,
    SandboxReport,
)
from workers.supervisor.profile import Settings, apply_limits, profile_of
from workers.supervisor.report import decode_call, encode_outcome, write_orphan
from workers.supervisor.tree import adopt_orphans, end_all
from workers.supervisor.watch import Bounds, End, Ran, watch
from workers.tools.fetch import Fetch
from workers.tools.plan import Plan, Refusal
from workers.tools.snapshot import reopen
from workers.tools.table import plan_of

RAW_OUTPUT_BYTES_MAX = 65_536
_CODES: Mapping[End, str] = {
    End.STOPPED: "CANCELLED",
    End.TIMED_OUT: "WALL_LIMIT",
    End.POOL_LOST: "POOL_LOST",
    End.TOO_MANY_PROCESSES: "RESOURCE_LIMIT",
    End.KILLED: "TOOL_CRASHED",
}


@dataclass(frozen=True, slots=True)
class Ready:
    """What a supervisor has at hand before it knows its call."""

    settings: Settings
    fetch: Fetch | None
    etc: Mapping[str, int]


def get_ready(settings: Settings, fetch: Fetch | None) -> Ready:
    """Makes this process a supervisor: bounded, and heir of every process that it will start."""
    os.setsid()
    os.umask(0o022)
    adopt_orphans()
    apply_limits(settings.limits)
    return Ready(settings, fetch, lay_out_etc())


def supervise(channel: Channel, ready: Ready) -> None:
    """Carries out the one call that comes on `channel`. Returns when its outcome is in safe hands."""
    try:
        frame = channel.receive()
    except LineClosedError:
        return  # Whoever wanted to ask is gone, and nothing was asked.
    if frame is None or frame["frame"] != CALL:
        return
    call = decode_call(frame["call"])
    if call.workspace is not None:
        # An earlier run may have shut everybody out of it. Where it cannot be done the launcher says why.
        with contextlib.suppress(OSError):
            reopen(call.workspace)
    _deliver(channel, ready.settings.orphan_outcome_dir, call, _outcome(channel, ready, call))


def _outcome(channel: Channel, ready: Ready, call: Call) -> Outcome:
    try:
        plan = ROOT_REFUSED if os.geteuid() == 0 else plan_of(call, ready.settings, ready.fetch)
    except Exception as error:  # noqa: BLE001 - around a tool's preparation: whatever it is, nothing ran
        return NotStarted("SANDBOX_SETUP_FAILED", f"preparing {call.tool} failed: {error!r}")
    if isinstance(plan, NotStarted):
        return plan
    if isinstance(plan, Refusal):
        return Failed(plan.code, plan.message, plan.began)
    return _ask(channel, call) or _carry_out(channel, ready, call, plan)


def _ask(channel: Channel, call: Call) -> NotStarted | None:
    """Why the effect must not begin, or None. The last question before it does."""
    try:
        channel.send(READY)
        answer = channel.receive()
    except LineClosedError:
        return NotStarted("POOL_LOST", "the pool that asked is gone")
    if answer is None or answer["frame"] != GO:
        reason = answer or {"code": "CANCELLED_BEFORE_START", "reason": "no answer"}
        return NotStarted(str(reason["code"]), str(reason["reason"]))
    if time.clock_gettime_ns(time.CLOCK_BOOTTIME) >= call.start_by_boottime_ns:
        return NotStarted("START_BY_PASSED", "the moment by which the effect must begin is over")
    return None


def _carry_out(channel: Channel, ready: Ready, call: Call, plan: Plan) -> Outcome:
    limits = ready.settings.limits
    began_ns = time.monotonic_ns()
    deadline_ns = began_ns + plan.wall_limit_ms * 1_000_000
    bounds = Bounds(began_ns, deadline_ns, call.output_limit_bytes // 2, limits.processes)
    try:
        child, sandbox = _start(ready, call, plan)
    except OSError as error:
        return NotStarted("SANDBOX_SETUP_FAILED", f"the launcher cannot be started: {error}")
    try:
        ran = watch(child, channel, bounds)
        return _concluded(plan, ran, sandbox)
    except Exception as error:  # noqa: BLE001 - around a running tool: its effect may have begun
        end_all()
        return Failed("INTERNAL", repr(error), began=True, sandbox=sandbox)


def _start(ready: Ready, call: Call, plan: Plan) -> tuple[Child, SandboxReport]:
    if isinstance(plan.launch, OwnFunction):
        return start_function(plan.launch), UNSANDBOXED
    sandbox = ready.settings.sandbox
    assert not isinstance(sandbox, NotStarted)
    profile = profile_of(call, plan.launch.folder, ready.settings.limits)
    return start_sandboxed(sandbox, profile, plan.launch, ready.etc), sandbox.report


def _concluded(plan: Plan, ran: Ran, sandbox: SandboxReport) -> Outcome:
    if ran.end is not End.EXITED:
        return _failed(Refusal(_CODES[ran.end], ran.reason, began=True), ran, sandbox, plan)
    if not ran.is_tree_gone:
        return _failed(Refusal("INTERNAL", "a process outlived SIGKILL", began=True), ran, sandbox, plan)
    answer = plan.conclude(ran)
    if isinstance(answer, Refusal):
        if answer.code == "SANDBOX_SETUP_FAILED":
            return NotStarted(answer.code, answer.message)
        return _failed(answer, ran, sandbox, plan)
    return Completed(
        answer.exit_code,
        answer.output,
        answer.affected,
        answer.metrics,
        ran.duration_ms,
        sandbox,
        answer.truncated,
        ran.resources,
    )


def _failed(refusal: Refusal, ran: Ran, sandbox: SandboxReport, plan: Plan) -> Failed:
    streams = {"stdout": ran.stdout, "stderr": ran.stderr}
    half = RAW_OUTPUT_BYTES_MAX // 2
    return Failed(
        refusal.code,
        refusal.message,
        refusal.began,
        affected=plan.affected() if refusal.began else (),
        metrics={f"{name}_bytes": stream.size_bytes for name, stream in streams.items()},
        duration_ms=ran.duration_ms,
        sandbox=sandbox,
        truncated=tuple(name for name, stream in streams.items() if stream.truncated),
        resources=ran.resources,
        raw_output=ran.stdout.kept[:half] + ran.stderr.kept[:half],
    )


def _deliver(channel: Channel, orphans: Path | None, call: Call, outcome: Outcome) -> None:
    """Hands the outcome to the pool, or to the folder when the pool went before it said TAKEN."""
    try:
        channel.send(OUTCOME, outcome=encode_outcome(outcome))
        while (frame := channel.receive()) is not None:
            if frame["frame"] == TAKEN:
                return
    except LineClosedError:
        if orphans is not None:
            write_orphan(orphans, call, outcome)
