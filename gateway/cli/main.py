"""The command `interlock`: runs what was asked and turns how it ended into an exit code and at most one line.

A person never sees a traceback: what nobody expected is written to a file, and the line says which.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence

from gateway.cli.early import EarlyStop
from gateway.cli.name import command_name
from gateway.cli.output import ReaderGoneError, complain
from gateway.cli.verdict import Exit
from interlock.collection import collect_seldom
from interlock.errors import InterlockError, UsageError

INTERRUPTED = 130
UNUSABLE = frozenset(
    (errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.EROFS, errno.EEXIST, errno.EINVAL)
)
"""What is wrong with a name that somebody gave, rather than with this program."""
FOREGROUND = frozenset(("up", "run", "demo", "bench"))
"""Commands that end things in order, whatever was imported."""
SERVING = frozenset(("up", "run"))
"""Commands that may be told to stop at any moment of their start."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code for the shell.

    Without arguments it is the process's own command, and then a command that only asked something ends the
    process at once: taking every imported module apart would cost it a third of its time.
    """
    if arguments is not None:
        return _flushed(_run(list(arguments)))
    command = set(sys.argv[1:2])
    stop = EarlyStop()
    if command & SERVING:
        stop.listen()
    collect_seldom()
    status = _flushed(_run(sys.argv[1:], stop))
    if not command & FOREGROUND:
        os._exit(status)
    if command & SERVING:
        stop.leave()
    return status


def _flushed(status: int) -> int:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        return _reader_gone()
    except OSError as error:
        _discard_output()
        return _unexpected(error)
    return status


def _run(arguments: list[str], stop: EarlyStop | None = None) -> int:
    try:
        return _obey(arguments, stop)
    except (ReaderGoneError, BrokenPipeError):
        return _reader_gone()
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit:
        if stop is None or not stop.is_set():
            raise
        return Exit.OK
    except UsageError as error:
        complain(str(error))
        return Exit.USAGE
    except InterlockError as error:
        complain(str(error))
        return Exit.ERROR
    except Exception as error:  # noqa: BLE001 - the composition root: a traceback is no answer to a person
        return _unexpected(error)


def _obey(arguments: list[str], stop: EarlyStop | None) -> int:
    from typer._click.exceptions import ClickException, NoArgsIsHelpError

    from gateway.cli.app import build

    try:
        status = build()(arguments, prog_name=command_name(), standalone_mode=False, obj=stop)
    except NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return Exit.USAGE
    except ClickException as error:
        raise UsageError(error.format_message().rstrip(".")) from error
    return status if isinstance(status, int) else Exit.OK


def _unexpected(error: Exception) -> int:
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, ConnectionError):
        known = _known_os_error(error)
        if known is not None:
            complain(str(known))
            return Exit.ERROR
    what = f"{type(error).__name__}: {error}"
    internal = InterlockError("INTERNAL", f"{what[:300]}; the traceback is in {_write_log(error)}")
    complain(str(internal))
    return Exit.ERROR


def _known_os_error(error: OSError) -> InterlockError | None:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return InterlockError("DISK_FULL", f"{error.strerror}: {error.filename or 'standard output'}")
    if error.errno in (errno.EACCES, errno.EPERM):
        return InterlockError("NOT_PERMITTED", f"{error.strerror}: {error.filename or 'this account'}")
    if error.errno in UNUSABLE and error.filename:
        return InterlockError("FILE_UNUSABLE", f"{error.strerror}: {str(error.filename)[:300]}")
    return None


def _write_log(error: Exception) -> str:
    """The traceback in a file of its own; never among the data, which a reading command leaves as it is."""
    try:
        descriptor, path = tempfile.mkstemp(prefix="interlock-error-", suffix=".log")
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            traceback.print_exception(error, file=file)
    except OSError:
        return "no file, for none could be made"
    return path


def _reader_gone() -> int:
    _discard_output()
    return Exit.CLOSED_PIPE


def _discard_output() -> None:
    """What is still buffered goes nowhere, so that the interpreter's own flush at the end says nothing."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
