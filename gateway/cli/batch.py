"""Sends proposals by the client, and says of each where it stands: an answer, or the record it came to.

Stops sending as soon as nobody reads what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gateway.cli.moment import iso_or_none
from gateway.cli.name import as_called
from gateway.cli.output import Output, complain, hint
from gateway.cli.verdict import Exit, exit_of_answer, exit_of_record
from gateway.cli.visible import coded, visible, visible_json
from gateway.embedded.directory import DataDirectory
from gateway.nearest import nearest_tools
from gateway.reading import RESTING, LedgerOutcomes, open_reading
from gateway.story import Story, receipt, tell
from gateway.waiting import waits_for
from governance.ledger import Ledger
from interlock.answer import Answer
from interlock.canonical import Json, parse_json
from interlock.code import UnknownCodeError
from interlock.decision import Reason
from interlock.errors import AcceptanceUnknownError, InterlockError, NotAcceptedError, NotJsonError
from interlock.fragment import members
from interlock.phase import Phase

Fields = Mapping[str, Json]
Propose = Callable[[Sequence[tuple[Fields, str]]], Iterable[Answer]]
"""Sends proposals together, each its fields and its arguments as raw text; an answer each, in their order."""

WINDOW = 256
"""Lines of a file that are on their way at once."""
UNSETTLED = frozenset(("NOT_ACCEPTED", "ACCEPTANCE_UNKNOWN", "BROKER_UNAVAILABLE"))
"""Codes under which governance has said nothing: no verdict, so no rejection either."""

ALLOWED_IN_LINE = frozenset(
    (
        "id", "tool", "arguments", "arguments_json", "session", "stage", "subject", "route", "mode", "key",
        "priority", "deadline_ms", "repeat", "cause",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sending:
    """What sending needs: the way to the governor, and the ledger that says what came of it."""

    propose: Propose
    ledger: Ledger

    @property
    def outcomes(self) -> LedgerOutcomes:
        return LedgerOutcomes(self.ledger)

    def waits_for(self, invocation_id: str) -> str | None:
        """What it waits for; None where it has ended or runs."""
        with self.ledger.read() as view:
            return waits_for(view, invocation_id)

    def nearest(self, story: Story | None) -> tuple[str, ...]:
        """Known names like that of its tool."""
        if story is None:
            return ()
        with self.ledger.read() as view:
            return tuple(nearest_tools(view, story.record.tool))

    def story(self, invocation_id: str) -> Story | None:
        """What the ledger tells of one; None where it has nothing."""
        with self.ledger.read() as view:
            return tell(view, invocation_id)


def submit_one(
    directory: DataDirectory, fields: Fields, text: str, output: Output, *, wait: float | None, check: bool
) -> int:
    """Propose, wait if asked to, print, and give the exit code."""
    with _connected(directory) as sending:
        return propose_one(sending, fields, text, output, wait=wait, check=check)


def submit_lines(
    directory: DataDirectory,
    lines: Sequence[bytes],
    common: Fields,
    output: Output,
    *,
    wait: float | None,
    check: bool,
) -> int:
    """The same for every line of a file; the exit code is the greatest of its lines'."""
    with _connected(directory) as sending:
        return propose_lines(sending, lines, common, output, wait=wait, check=check)


@contextmanager
def _connected(directory: DataDirectory) -> Iterator[Sending]:
    from interlock.client import Client

    with open_reading(directory) as reading, Client(directory.broker_client_url) as client:

        def propose(proposals: Sequence[tuple[Fields, str]]) -> Iterator[Answer]:
            said = [{**fields, "arguments_json": text} for fields, text in proposals]
            for outcome in client.submit_many(said):
                yield _told(outcome) if isinstance(outcome, InterlockError) else outcome.answer

        yield Sending(propose, reading.ledger)


def _told(error: NotAcceptedError | AcceptanceUnknownError) -> Answer:
    """What the client tells as an error, as an answer: the ledger has nothing of it."""
    return Answer.refusing(error.invocation_id or None, Reason(code=error.code, sentence=error.message))


@dataclass(frozen=True, slots=True)
class Outcome:
    """One proposal and where it stands."""

    answer: Answer
    story: Story | None
    """None where the ledger has nothing of it."""
    waited: bool
    check: bool
    waits_for: str | None = None
    """What it waits for, where it has not ended."""
    line: int | None = None
    """Its line in the file, from 1."""
    nearest: tuple[str, ...] = ()
    """Known tools, where its tool is not known."""

    @property
    def status(self) -> int:
        """The exit code."""
        if self.answer.code in UNSETTLED and not self.answer.is_recorded:
            return Exit.ERROR
        if self.answer.status == "refused" or self.story is None:
            return exit_of_answer(self.answer)
        if self.waited or self.answer.status == "duplicate":
            status = exit_of_record(self.story.record, check=self.check)
            is_over = self.story.record.phase in RESTING or status is not Exit.OK
            return Exit.ERROR if self.waited and not is_over else status
        return exit_of_answer(self.answer)

    def to_json(self) -> dict[str, Any]:
        record = None if self.story is None else self.story.record
        sealed = None if self.story is None else receipt(self.story)
        return {
            "invocation_id": self.answer.invocation_id,
            "answer": self.answer.status,
            "status": None if record is None else record.status,
            "phase": self.answer.phase if record is None else record.phase,
            "code": self.answer.code or (None if record is None else record.reason_code),
            "sentence": self.answer.sentence or (None if record is None else record.reason),
            "exit_code": None if record is None else record.exit_code,
            "output": None if sealed is None else sealed["receipt"]["structured_output"],  # type: ignore[index, call-overload] # JSON of a receipt
            "record": None if record is None else record.to_json(),
            "pointer": None if self.story is None else _pointer(self.story),
            "nearest": list(self.nearest),
            "waits_for": None if self.waits_for is None else as_called(self.waits_for),
            **({} if self.line is None else {"line": self.line}),
        }

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
                "completed": None if self.story is None else iso_or_none(self.story.record.completed_at_us),
                "exit code": said["exit_code"],
            }
        )
        if said["output"] is not None:
            output.text(visible_json(said["output"]))

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


def propose_one(
    sending: Sending, fields: Fields, text: str, output: Output, *, wait: float | None, check: bool
) -> int:
    """Propose one, wait, print."""
    [answer] = sending.propose([(fields, text)])
    waited = _wait(sending, [answer], wait, output)
    outcome = _outcome(sending, answer, waited=waited, check=check)
    if output.as_json:
        output.json(outcome.to_json())
    else:
        outcome.print(output)
    output.flush()
    outcome.complain()
    return outcome.status


def propose_lines(
    sending: Sending,
    lines: Sequence[bytes],
    common: Fields,
    output: Output,
    *,
    wait: float | None,
    check: bool,
) -> int:
    """Propose every line, one answer a line in their order; with a wait all are sent before the first is."""
    worst = 0
    held: list[tuple[int, Answer]] = []
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    for start in range(0, len(numbered), WINDOW):
        window = numbered[start : start + WINDOW]
        answers = _proposed(sending.propose, [line for _, line in window], common)
        for (number, _), answer in zip(window, answers, strict=True):
            if wait is None:
                worst = max(worst, _say(sending, number, answer, output, waited=False, check=check))
            else:
                held.append((number, answer))
    waited = _wait(sending, [answer for _, answer in held], wait, output)
    for number, answer in held:
        worst = max(worst, _say(sending, number, answer, output, waited=waited, check=check))
    return worst


def _say(sending: Sending, line: int, answer: Answer, output: Output, *, waited: bool, check: bool) -> int:
    outcome = _outcome(sending, answer, waited=waited, check=check, line=line)
    said = outcome.to_json()
    if output.as_json:
        output.json(said)
    else:
        where = said["status"] if waited and said["status"] else said["answer"]
        why = f"  {coded(said['code'], said['sentence'])}" if said["code"] else ""
        why = f"  line {line}{why}" if answer.status == "refused" else why
        output.text(visible(f"{said['invocation_id'] or '-'}  {where}  {said['phase']}{why}"))
    # At once: who reads may want no more of it, and then nothing more is sent.
    output.flush()
    return outcome.status


def _wait(sending: Sending, answers: Sequence[Answer], seconds: float | None, output: Output) -> bool:
    if seconds is None:
        return False
    ids = [answer.invocation_id for answer in answers if answer.invocation_id and answer.status != "refused"]
    for answer in answers:
        if answer.phase == Phase.AWAITING_APPROVAL.value:
            todo = f"`interlock inbox`, then `interlock approve {answer.invocation_id}`"
            hint(f"{answer.invocation_id} waits for an approval: {todo}")
    sending.outcomes.wait(ids, seconds, pause=output.wait)
    return True


def _outcome(
    sending: Sending, answer: Answer, *, waited: bool, check: bool, line: int | None = None
) -> Outcome:
    # What was refused without being recorded may bear the id of somebody else's invocation.
    is_ours = answer.invocation_id is not None and (answer.status != "refused" or answer.is_recorded)
    story = sending.story(str(answer.invocation_id)) if is_ours else None
    waits = None if story is None else sending.waits_for(str(answer.invocation_id))
    code = answer.code or (None if story is None else story.record.reason_code)
    nearest = sending.nearest(story) if code == "UNKNOWN_TOOL" else ()
    return Outcome(answer, story, waited, check, waits, line, nearest)


def _pointer(story: Story) -> str | None:
    """Where in the arguments the reason of a refusal points; None where it points nowhere."""
    last = next((event for event in reversed(story.events) if event.type == "ToolExecutionRejected"), None)
    reason: Any = None if last is None else last.body().get("reason")
    pointer = reason.get("pointer") if isinstance(reason, dict) else None
    return pointer if isinstance(pointer, str) else None


def _proposed(propose: Propose, lines: Sequence[bytes], common: Fields) -> Iterator[Answer]:
    """An answer for each line of a window; what is no proposal at all is answered here, in its place."""
    read = [_read(line) for line in lines]
    good = [({**common, **one[0]}, one[1]) for one in read if not isinstance(one, Answer)]
    answers = iter(propose(good))
    for one in read:
        yield one if isinstance(one, Answer) else next(answers)


def _read(line: bytes) -> tuple[dict[str, Json], str] | Answer:
    try:
        return read_line(line)
    except NotJsonError as error:
        return Answer.refusing(None, Reason(code=error.code, sentence=error.message[:512]))


def read_line(line: bytes) -> tuple[dict[str, Json], str]:
    """The fields of one line and its arguments as raw text. Raises NotJsonError.

    `arguments` is handed on as it is written; `arguments_json` is a string that holds them.
    """
    raw = members(line)
    unknown = sorted(raw.keys() - ALLOWED_IN_LINE)
    if unknown:
        raise NotJsonError("UNKNOWN_FIELD", f"a line has no field {unknown[0][:64]!a}")
    if ("arguments" in raw) == ("arguments_json" in raw):
        raise NotJsonError("FIELD_MISSING", "a line has either arguments or arguments_json")
    if "tool" not in raw:
        raise NotJsonError("FIELD_MISSING", "tool is missing")
    text = raw.pop("arguments", None)
    fields = {name: parse_json(value) for name, value in raw.items()}
    held = fields.pop("arguments_json", None)
    if text is None:
        if not isinstance(held, str):
            raise NotJsonError("FIELD_INVALID", "arguments_json must be a string that holds JSON")
        return fields, held
    try:
        return fields, text.decode()
    except UnicodeDecodeError as error:
        raise NotJsonError("JSON_ENCODING", "arguments are not UTF-8", error.start) from None


def _error(code: str, message: str) -> InterlockError:
    """The error of a code that came from elsewhere; one that this program does not know keeps its name."""
    try:
        return InterlockError(code, message)
    except UnknownCodeError:
        return InterlockError("NOT_ACCEPTED", f"{code}: {message}")
