"""The tree of errors this product raises, split by what the caller can do about them.

Every error carries a stable code from `interlock.code`, so that its remedy is known; a refusal of a
proposal is never one of these, it is a value.
"""

from __future__ import annotations

from typing import ClassVar

from interlock.code import ErrorCode
from interlock.code import code as code_of


class InterlockError(Exception):
    """Root of the tree. `code` is a name from the table, `data` what a program may want to know.

    `str(error)` is one line: `CODE: message (remedy)`.
    """

    def __init__(self, code: str, message: str, **data: object) -> None:
        super().__init__(code, message)
        self.entry: ErrorCode = code_of(code)
        self.message = message
        self.data: dict[str, object] = data

    @property
    def code(self) -> str:
        return self.entry.code

    @property
    def remedy(self) -> str:
        return self.entry.remedy

    @property
    def retryable(self) -> bool:
        return self.entry.retryable

    def __str__(self) -> str:
        return " ".join(f"{self.code}: {self.message} ({self.remedy})".split())

    def __reduce__(self) -> tuple[object, ...]:
        # The default would call the class with `args` alone; children have signatures of their own.
        return (_restore, (type(self), self.code, self.message, dict(self.__dict__)))


def _restore(kind: type[InterlockError], code: str, message: str, state: dict[str, object]) -> InterlockError:
    error = kind.__new__(kind, code, message)
    error.args = (code, message)
    error.__dict__.update(state)
    return error


class RetryLaterError(InterlockError):
    """Nothing is wrong with what was asked: the same call may succeed later."""


class GiveUpError(InterlockError):
    """The same call will never succeed: change it, or leave it."""


class OursToFixError(InterlockError):
    """The installation or this program is at fault: an operator has to act."""


class NotJsonError(GiveUpError):
    """Text or a value that is not the strict JSON of this product.

    `detail` says what was found; `offset` is the byte at which, or None where no byte can be named.
    """

    def __init__(self, code: str, detail: str, offset: int | None = None) -> None:
        at = "" if offset is None else f" at byte {offset}"
        super().__init__(code, f"{detail}{at}", offset=offset)
        self.detail = detail
        self.offset = offset


class SchemaError(GiveUpError):
    """A schema that cannot be used; `pointer` is the JSON Pointer of the place in the schema."""

    def __init__(self, code: str, message: str, pointer: str = "") -> None:
        super().__init__(code, message, pointer=pointer)
        self.pointer = pointer


class NotAcceptedError(GiveUpError):
    """The proposal was refused for good, or its id is dead: it will not be accepted later."""

    def __init__(self, invocation_id: str, message: str, code: str = "NOT_ACCEPTED") -> None:
        super().__init__(code, message, invocation_id=invocation_id)
        self.invocation_id = invocation_id


class AcceptanceUnknownError(RetryLaterError):
    """The deadline passed before anything was known: the proposal may yet be accepted."""

    code_default: ClassVar[str] = "ACCEPTANCE_UNKNOWN"

    def __init__(self, invocation_id: str) -> None:
        super().__init__(
            self.code_default,
            f"whether {invocation_id} was accepted is not known",
            invocation_id=invocation_id,
        )
        self.invocation_id = invocation_id


class ConflictError(RetryLaterError):
    """An append expected another version of a stream: read it again and judge anew."""

    def __init__(self, stream: str, expected: int, actual: int | None) -> None:
        super().__init__(
            "VERSION_CONFLICT",
            f"stream {stream} is at {actual}, expected {expected}",
            stream=stream,
            expected=expected,
            actual=actual,
        )
        self.stream = stream
        self.expected = expected
        self.actual = actual


class LedgerUnavailableError(RetryLaterError):
    """The ledger cannot be reached now; nothing was accepted and nothing may start."""

    def __init__(self, message: str, code: str = "LEDGER_UNAVAILABLE") -> None:
        super().__init__(code, message)


class LedgerFencedError(OursToFixError):
    """The ledger is behind what the stream or an anchor knows: it is read only until recovered."""

    def __init__(self, message: str) -> None:
        super().__init__("LEDGER_FENCED", message)


class LedgerClosedError(OursToFixError):
    """An I/O error closed the ledger in this process: only a restart opens it again."""

    def __init__(self, message: str) -> None:
        super().__init__("LEDGER_IO_ERROR", message)


class BrokerUnavailableError(RetryLaterError):
    """The broker cannot be reached; what was accepted waits in the ledger."""

    def __init__(self, message: str) -> None:
        super().__init__("BROKER_UNAVAILABLE", message)


class AlreadyRunningError(GiveUpError):
    """Another process holds this data directory. `pid` is its process id where known."""

    def __init__(self, data_directory: str, pid: int | None = None) -> None:
        holder = "another process" if pid is None else f"process {pid}"
        super().__init__(
            "ALREADY_RUNNING", f"{holder} holds {data_directory}", data_directory=data_directory, pid=pid
        )
        self.data_directory = data_directory
        self.pid = pid


class NotRunningError(RetryLaterError):
    """No system runs on this data directory."""

    def __init__(self, data_directory: str) -> None:
        super().__init__("NOT_RUNNING", f"no system runs on {data_directory}", data_directory=data_directory)
        self.data_directory = data_directory


class NotFoundError(GiveUpError):
    """Nothing of this kind has this name. `kind` is such as `invocation`, `session`, `tool`."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__("NOT_FOUND", f"there is no {kind} {name}", kind=kind, name=name)
        self.kind = kind
        self.name = name


class UsageError(GiveUpError):
    """A command or call was used in a way it does not know."""

    def __init__(self, message: str) -> None:
        super().__init__("USAGE", message)


class CommitUnknownError(OursToFixError):
    """The commit's answer was lost: what it held is either wholly in the ledger or not at all.

    Whoever wrote does not act on it: it reads again and looks for its own nonce.
    """

    def __init__(self, message: str) -> None:
        super().__init__("COMMIT_UNKNOWN", message)
