"""How the sandbox's self-test is launched and read. Only a spawner started for it can reach this."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from workers.supervisor.launch import Program
from workers.supervisor.port import AffectedEntity, Call
from workers.supervisor.profile import PROGRAM_INSIDE
from workers.supervisor.report import plain, to_bytes
from workers.supervisor.watch import Ran
from workers.tools.plan import Answer, Refusal

_SCRIPT = Path(__file__).with_name("selftest.py")


@dataclass(frozen=True, slots=True)
class SelfTestPlan:
    """One run of the self-test."""

    launch: Program
    wall_limit_ms: int

    def conclude(self, ran: Ran) -> Answer | Refusal:
        """Which checks held."""
        if ran.exit_code != 0:
            said = ran.stderr.kept.decode(errors="replace").strip()
            return Refusal("SANDBOX_UNAVAILABLE", said or "the self-test did not end")
        return Answer(0, json.loads(ran.stdout.kept))

    def affected(self) -> tuple[AffectedEntity, ...]:
        """Nothing: it sees no workspace."""
        return ()


def plan_self_test(call: Call, interpreter: str) -> SelfTestPlan:
    """The plan of the self-test in `call`."""
    argv = (interpreter, "-I", "-S", "-B", PROGRAM_INSIDE)
    program = Program(argv, to_bytes(plain(call.arguments)), script=_SCRIPT.read_bytes())
    return SelfTestPlan(program, call.wall_limit_ms)
