"""Sends proposals by the client, and says of each where it stands: an answer, or the record it came to.

Lines of a file stream through: a bounded number is on its way, and none is sent once nobody reads what is
said, the system is gone, or somebody interrupts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic
from typing import BinaryIO, NamedTuple

from gateway.cli.file import numbered_lines
from gateway.cli.outcome import Outcome
from gateway.cli.output import Output, hint
from gateway.cli.tally import Interruption, Tally
from gateway.embedded.directory import DataDirectory
from gateway.nearest import nearest_tools
from gateway.reading import RESTING, LedgerOutcomes, fold_record, open_reading
from gateway.waiting import waits_for
from governance.ledger import Ledger, LedgerView
from interlock.answer import Answer
from interlock.canonical import Json, parse_json
from interlock.decision import Reason
from interlock.errors import AcceptanceUnknownError, InterlockError, NotAcceptedError, NotJsonError
from interlock.event import StoredEvent, Stream, invocation_stream
from interlock.fragment import members
from interlock.phase import Phase

Fields = Mapping[str, Json]
Proposal = tuple[Fields, str]
"""The fields of one proposal, and its arguments as raw text."""
Propose = Callable[[Iterable[Sequence[Proposal]]], Iterator[Sequence[Answer]]]
"""Sends portions of proposals, several underway at once; the answers of each portion, in their order."""

PORTION_MAX = 500
"""Lines that are sent together."""
PORTION_BYTES = 4_194_304
"""A portion ends with the line that fills it."""
HELD_MAX = 10_000
"""With a wait: lines that are sent before the first of them is waited for."""
WAITED_TOGETHER = 64
READ_TOGETHER = 250

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

    def outcomes(
        self,
        answers: Sequence[Answer],
        lines: Sequence[int | None],
        *,
        waited: bool,
        check: bool,
        whole: bool = False,
    ) -> Iterator[Outcome]:
        """Each answer with what the ledger has to add to it; the ledger is asked for many at once.

        Without `whole`, or a wait, what simply stands in the line is not looked for.
        """
        for start in range(0, len(answers), READ_TOGETHER):
            part = slice(start, start + READ_TOGETHER)
            bare = [
                Outcome(answer, waited=waited, check=check, line=line)
                for answer, line in zip(answers[part], lines[part], strict=True)
            ]
            yield from self._told(bare, whole or waited)

    def _told(self, bare: Sequence[Outcome], whole: bool) -> Sequence[Outcome]:
        wanted = {
            name: invocation_stream(name)
            for name in (_own_id(one.answer) for one in bare if whole or _says_too_little(one.answer))
            if name is not None
        }
        if not wanted:
            return bare
        with self.ledger.read() as view:
            found = view.events(wanted.values())
            return [_told(view, one, found, wanted.get(_own_id(one.answer) or "")) for one in bare]


def _own_id(answer: Answer) -> str | None:
    # What was refused without being recorded may bear the id of somebody else's invocation.
    is_ours = answer.invocation_id is not None and (answer.status != "refused" or answer.is_recorded)
    return answer.invocation_id if is_ours else None


def _says_too_little(answer: Answer) -> bool:
    """Whether there is more to tell than that it stands in the line."""
    return answer.status != "accepted" or answer.phase != Phase.QUEUED.value


def _told(
    view: LedgerView, bare: Outcome, found: Mapping[Stream, Sequence[StoredEvent]], stream: Stream | None
) -> Outcome:
    events = found.get(stream, ()) if stream is not None else ()
    record = fold_record(events)
    if record is None:
        return bare
    code = bare.answer.code or record.reason_code
    return replace(
        bare,
        record=record,
        events=events,
        waits_for=None if record.phase in RESTING else waits_for(view, record.invocation_id),
        nearest=tuple(nearest_tools(view, record.tool)) if code == "UNKNOWN_TOOL" else (),
    )


def submit_one(
    directory: DataDirectory, fields: Fields, text: str, output: Output, *, wait: float | None, check: bool
) -> int:
    """Propose, wait if asked to, print, and give the exit code."""
    with _connected(directory) as sending:
        return propose_one(sending, fields, text, output, wait=wait, check=check)


def submit_lines(
    directory: DataDirectory,
    stream: BinaryIO,
    common: Fields,
    output: Output,
    *,
    wait: float | None,
    check: bool,
) -> int:
    """The same for every line of a file; the exit code is the greatest of its lines'."""
    with _connected(directory) as sending:
        return propose_lines(sending, stream, common, output, wait=wait, check=check)


@contextmanager
def _connected(directory: DataDirectory) -> Iterator[Sending]:
    from interlock.client import Client

    with open_reading(directory) as reading, Client(directory.broker_client_url) as client:

        def propose(portions: Iterable[Sequence[Proposal]]) -> Iterator[list[Answer]]:
            said = ([{**fields, "arguments_json": text} for fields, text in portion] for portion in portions)
            for outcomes in client.submit_portions(said):
                yield [
                    _as_answer(outcome) if isinstance(outcome, InterlockError) else outcome.answer
                    for outcome in outcomes
                ]

        yield Sending(propose, reading.ledger)


def _as_answer(error: NotAcceptedError | AcceptanceUnknownError) -> Answer:
    """What the client tells as an error, as an answer: the ledger has nothing of it."""
    return Answer.refusing(error.invocation_id or None, Reason(code=error.code, sentence=error.message))


def propose_one(
    sending: Sending, fields: Fields, text: str, output: Output, *, wait: float | None, check: bool
) -> int:
    """Propose one, wait, print."""
    [[answer]] = sending.propose([[(fields, text)]])
    if wait is not None:
        _hint(answer)
        _wait(sending, [answer], wait, output)
    [outcome] = sending.outcomes([answer], [None], waited=wait is not None, check=check, whole=True)
    if output.as_json:
        output.json(outcome.to_json())
    else:
        outcome.print(output)
    output.flush()
    outcome.complain()
    return outcome.status


# --- the lines of a file -------------------------------------------------------------------------


class _Line(NamedTuple):
    """One line of a portion: what it proposes, or the answer that it got here."""

    number: int
    said: Proposal | Answer


class _Held(NamedTuple):
    """Answered lines whose outcome is waited for until a moment."""

    numbers: Sequence[int]
    answers: Sequence[Answer]
    until: float


def propose_lines(
    sending: Sending,
    stream: BinaryIO,
    common: Fields,
    output: Output,
    *,
    wait: float | None,
    check: bool,
) -> int:
    """Propose every line, one answer a line in their order.

    With a wait, what is on its way is bounded too: after 10,000 lines the oldest are waited for before more
    are sent, each portion until so long after it was answered. Raises KeyboardInterrupt when all that was
    sent before an interruption has been told.
    """
    tally = Tally(output)
    held: deque[_Held] = deque()
    with Interruption() as interruption:
        for numbers, answers in _answered(sending, stream, common, tally, interruption):
            if wait is None:
                _say(sending, numbers, answers, output, tally, check=check)
                continue
            for answer in answers:
                _hint(answer)
            held.append(_Held(numbers, answers, monotonic() + wait))
            while sum(len(portion.numbers) for portion in held) > HELD_MAX:
                _settle(sending, held.popleft(), output, tally, interruption, check=check)
        while held:
            _settle(sending, held.popleft(), output, tally, interruption, check=check)
    return tally.end(interrupted=interruption.came())


def _answered(
    sending: Sending, stream: BinaryIO, common: Fields, tally: Tally, interruption: Interruption
) -> Iterator[tuple[list[int], list[Answer]]]:
    """Portions of answered lines, in their order; ends early where sending on makes no sense."""
    underway: deque[list[_Line]] = deque()

    def portions() -> Iterator[list[Proposal]]:
        rest = numbered_lines(stream)
        while not (tally.is_lost or interruption.came()):
            portion: list[_Line] = []
            with interruption.at_once():
                portion = _portion(rest, common)
            if interruption.came() or not portion:
                return
            underway.append(portion)
            tally.read_until(portion[-1].number)
            yield [line.said for line in portion if not isinstance(line.said, Answer)]

    for answers in sending.propose(portions()):
        portion, found = underway.popleft(), iter(answers)
        each = [line.said if isinstance(line.said, Answer) else next(found) for line in portion]
        tally.answered([line.number for line in portion], each)
        yield [line.number for line in portion], each


def _portion(rest: Iterator[tuple[int, bytes | NotJsonError]], common: Fields) -> list[_Line]:
    portion: list[_Line] = []
    size_bytes = 0
    for number, line in rest:
        portion.append(_Line(number, _read(line, common)))
        size_bytes += 0 if isinstance(line, NotJsonError) else len(line)
        if len(portion) == PORTION_MAX or size_bytes >= PORTION_BYTES:
            break
    return portion


def _read(line: bytes | NotJsonError, common: Fields) -> Proposal | Answer:
    try:
        if isinstance(line, NotJsonError):
            raise line
        fields, text = read_line(line)
    except NotJsonError as error:
        return Answer.refusing(None, Reason(code=error.code, sentence=error.message[:512]))
    return {**common, **fields}, text


def _settle(
    sending: Sending,
    held: _Held,
    output: Output,
    tally: Tally,
    interruption: Interruption,
    *,
    check: bool,
) -> None:
    """Wait for a portion and say what came of it; interrupted, what it has come to by now."""
    if not interruption.came():
        with interruption.at_once():
            _wait(sending, held.answers, held.until - monotonic(), output)
    _say(sending, held.numbers, held.answers, output, tally, waited=True, check=check)


def _say(
    sending: Sending,
    numbers: Sequence[int],
    answers: Sequence[Answer],
    output: Output,
    tally: Tally,
    *,
    waited: bool = False,
    check: bool,
) -> None:
    for outcome in sending.outcomes(answers, numbers, waited=waited, check=check):
        outcome.print_line(output)
        tally.said(outcome)
    # At once: who reads may want no more of it, and then nothing more is sent.
    output.flush()
    tally.show()


def _wait(sending: Sending, answers: Sequence[Answer], seconds: float, output: Output) -> None:
    """Wait for a few at a time: once the first rest, so do most of the others."""
    ids = [answer.invocation_id for answer in answers if answer.invocation_id and answer.status != "refused"]
    give_up_at = monotonic() + seconds
    outcomes = LedgerOutcomes(sending.ledger)
    for start in range(0, len(ids), WAITED_TOGETHER):
        together = ids[start : start + WAITED_TOGETHER]
        outcomes.wait(together, max(0.0, give_up_at - monotonic()), pause=output.wait)


def _hint(answer: Answer) -> None:
    if answer.phase == Phase.AWAITING_APPROVAL.value:
        todo = f"`interlock inbox`, then `interlock approve {answer.invocation_id}`"
        hint(f"{answer.invocation_id} waits for an approval: {todo}")


def read_line(line: bytes) -> Proposal:
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
