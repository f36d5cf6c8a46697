"""One proposal and where it stands, as a script and as a person read it. Reads nothing by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gateway.cli.moment import iso_or_none
from gateway.cli.name import as_called
from gateway.cli.output import Output, complain
from gateway.cli.verdict import Exit, exit_of_answer, exit_of_record
from gateway.cli.visible import coded, visible, visible_json
from gateway.reading import RESTING
from interlock.answer import Answer
from interlock.code import UnknownCodeError
from interlock.errors import InterlockError
from interlock.event import StoredEvent
from interlock.state import ToolInvocationRecord

UNSETTLED = frozenset(("NOT_ACCEPTED", "ACCEPTANCE_UNKNOWN", "BROKER_UNAVAILABLE"))
"""Codes under which governance has said nothing: no verdict, so no rejection either."""


def is_unsettled(answer: Answer) -> bool:
    """Whether governance has said nothing of it."""
    return answer.code in UNSETTLED and not answer.is_recorded


@dataclass(frozen=True, slots=True)
class Outcome:
    """One proposal and where it stands."""

    answer: Answer
    record: ToolInvocationRecord | None = None
    """None where the ledger has nothing of it, or where it was not looked for."""
    events: Sequence[StoredEvent] = ()
    """Those that the record adds up from."""
    waited: bool = False
    check: bool = False
    waits_for: str | None = None
    """What it waits for, where it has not ended."""
    line: int | None = None
    """Its line in the file, from 1."""
    nearest: tuple[str, ...] = ()
    """Known tools, where its tool is not known."""

    @property
    def status(self) -> int:
        """The exit code."""
        if is_unsettled(self.answer):
            return Exit.ERROR
        if self.answer.status == "refused" or self.record is None:
            return exit_of_answer(self.answer)
        if self.waited or self.answer.status == "duplicate":
            status = exit_of_record(self.record, check=self.check)
            is_over = self.record.phase in RESTING or status is not Exit.OK
            return Exit.ERROR if self.waited and not is_over else status
        return exit_of_answer(self.answer)

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints: always the same keys, `line` besides for a line of a file."""
        record, answer = self.record, self.answer
        said = {
            "invocation_id": answer.invocation_id,
            "answer": answer.status,
            "status": self._status(),
            "phase": answer.phase if record is None else record.phase,
            "code": answer.code or (None if record is None else record.reason_code),
            "sentence": answer.sentence or (None if record is None else record.reason),
            "exit_code": None if record is None else record.exit_code,
            "output": self._output(),
            "record": None if record is None else record.to_json(),
            "pointer": self._pointer(),
            "nearest": list(self.nearest),
            "waits_for": None if self.waits_for is None else as_called(self.waits_for),
        }
        if self.line is not None:
            said["line"] = self.line
        return said

    def _status(self) -> str | None:
        if self.record is not None:
            return self.record.status
        return "REQUESTED" if self.answer.status == "accepted" else None

    def _output(self) -> Any:
        """The structured output of the last sealed receipt, None where no execution was reported."""
        for event in reversed(self.events):
            sealed: Any = event.body().get("sealed")
            if isinstance(sealed, dict):
                return sealed["receipt"]["structured_output"]
        return None

    def _pointer(self) -> str | None:
        """Where in the arguments the reason of a refusal points; None where it points nowhere."""
        for event in reversed(self.events):
            if event.type == "ToolExecutionRejected":
                reason: Any = event.body().get("reason")
                pointer = reason.get("pointer") if isinstance(reason, dict) else None
                return pointer if isinstance(pointer, str) else None
        return None

    def print(self, output: Output) -> None:
        """For a person."""
        said = self.to_json()
        output.facts(
            {
                "invocation": said["invocation_id"],
                "status": said["status"],
                "phase": said["phase"],
                "reason": coded(said["code"], said["sentence"]) if said["code"] else None,
                "now": said["waits_for"],
                "completed": None if self.record is None else iso_or_none(self.record.completed_at_us),
                "exit code": said["exit_code"],
            }
        )
        if said["output"] is not None:
            output.text(visible_json(said["output"]))

    def print_line(self, output: Output) -> None:
        """The same on one line, for one of many."""
        if output.as_json:
            output.json(self.to_json())
            return
        record, answer = self.record, self.answer
        where = record.status if self.waited and record is not None else answer.status
        phase = answer.phase if record is None else record.phase
        code = answer.code or (None if record is None else record.reason_code)
        sentence = answer.sentence or (None if record is None else record.reason)
        why = f"  {coded(code, sentence)}" if code else ""
        why = f"  line {self.line}{why}" if answer.status == "refused" else why
        output.text(visible(f"{answer.invocation_id or '-'}  {where}  {phase}{why}"))

    def complain(self) -> None:
        """One line on standard error for what is no success, with the remedy of its code."""
        said = self.to_json()
        if self.status != Exit.OK and said["code"]:
            where = "" if said["pointer"] is None else f" at {said['pointer'] or 'the top'}"
            near = f"; did you mean {' or '.join(self.nearest)}?" if self.nearest else ""
            plain = (said["sentence"] or "").removeprefix(f"{said['code']}: ")
            sentence = f"{said['invocation_id']}: {plain}{where}{near}"
            complain(str(_error(said["code"], sentence)))
        elif self.status == Exit.ERROR:
            why = f" and {self.waits_for}" if self.waits_for else ""
            waited = InterlockError("WAIT_TIMEOUT", f"{said['invocation_id']} is {said['phase']}{why}")
            complain(str(waited))


def _error(code: str, message: str) -> InterlockError:
    """The error of a code that came from elsewhere; one that this program does not know keeps its name."""
    try:
        return InterlockError(code, message)
    except UnknownCodeError:
        return InterlockError("NOT_ACCEPTED", f"{code}: {message}")
