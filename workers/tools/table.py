"""The closed list of built-in tools that run behind a supervisor, and the plan of each."""

from __future__ import annotations

from workers.supervisor.port import Call, NotStarted
from workers.supervisor.profile import Settings
from workers.tools.fetch import Fetch, plan_fetch
from workers.tools.file import FILE_TOOLS, plan_file
from workers.tools.plan import Plan, Refusal
from workers.tools.selfcheck import plan_self_test
from workers.tools.shell import plan_shell

SELF_TEST = "sandbox.self-test"
SUPERVISED_TOOLS = (*FILE_TOOLS, "shell.run", "http.fetch")


def plan_of(call: Call, settings: Settings, fetch: Fetch | None) -> Plan | Refusal | NotStarted:
    """What to launch for `call`. A refusal is final; NotStarted means another pool may do better."""
    if settings.is_self_test:
        assert not isinstance(settings.sandbox, NotStarted)
        return plan_self_test(call, settings.sandbox.interpreter)
    if call.tool not in SUPERVISED_TOOLS:
        return NotStarted("TOOL_UNAVAILABLE", f"{call.tool!r} is no built-in tool of this version")
    if call.tool == "http.fetch":
        if fetch is None:
            return Refusal("HOST_NOT_ALLOWED", "this pool lists no host at all")
        return plan_fetch(call, settings.egress, fetch)
    if isinstance(settings.sandbox, NotStarted):
        return settings.sandbox
    return plan_shell(call) if call.tool == "shell.run" else plan_file(call, settings.sandbox.interpreter)
