"""What `doctor` looks at beyond machine and directory: ledger, keys, formats, sandbox, claimers, backlog.

Each check is one reading with a remedy; nothing is mended and nothing is made.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from gateway.embedded.directory import DataDirectory
from gateway.embedded.environment import Check
from gateway.embedded.ledger_note import server_of
from governance.ledger import Ledger, LedgerView
from interlock.errors import InterlockError

if TYPE_CHECKING:
    from gateway.reading import Reading
    from governance.adapters.postgres_ledger.horizon import Horizon

BACKLOG_SECONDS_HIGH = 60
FORMAT_PLACES, WAL_FORMAT = slice(18, 20), b"\2\2"
"""Where a SQLite file says how it may be written and read, and what it says in WAL mode."""
SANDBOX_UID = 23_917
"""Whom the sandbox is proven as where nobody owns the data yet."""
DURABLE: Mapping[str, str] = MappingProxyType(
    {
        "journal_mode": "wal",
        "synchronous": "2",
        "fullfsync": "1",
        "recursive_triggers": "1",
        "foreign_keys": "1",
    }
)
"""What the ledger's connections must answer."""
DURABLE_SERVER = ("fsync", "synchronous_commit", "full_page_writes")
"""What a PostgreSQL server must not have switched off."""


def examine(directory: DataDirectory) -> list[Check]:
    """Every check of what the directory holds, in the order in which they are worth reading."""
    checks: tuple[Callable[[], Check | list[Check]], ...] = (
        lambda: check_keys(directory),
        check_formats,
        check_sandbox,
        lambda: check_ledger(directory),
    )
    found: list[Check] = []
    for check in checks:
        result = check()
        found.extend(result if isinstance(result, list) else [result])
    return found


def check_keys(directory: DataDirectory) -> Check:
    """Whether the private keys are there, and nobody else's to read."""
    if not directory.keys.is_dir() or not any(directory.keys.iterdir()):
        return Check("keys", "off", "none yet", "`interlock up` makes them")
    private = sorted(path for path in directory.keys.iterdir() if path.suffix == ".key")
    owner = directory.path.stat().st_uid
    for path in (directory.keys, *private):
        found = path.stat()
        mode = stat.S_IMODE(found.st_mode)
        if mode & 0o077:
            return Check("keys", "failed", f"{path} has mode {mode:04o}", f"chmod go= {path}")
        if found.st_uid != owner:
            return Check("keys", "failed", f"{path} belongs to {found.st_uid}", f"chown {owner} {path}")
    return Check("keys", "ok", f"{len(private)} private keys, mode 0600 in a folder of 0700")


def check_formats() -> Check:
    """Whether the schema engine asserts what schemas say, formats included."""
    from interlock.schema import self_check

    wrong = self_check()
    if wrong:
        return Check("formats", "failed", "; ".join(wrong), "install the locked version of jsonschema-rs")
    return Check("formats", "ok", "schemas are closed and formats are asserted")


def check_sandbox() -> Check:
    """Whether a sandbox holds here, proven by running one as an account that is not root."""
    said = _as_unprivileged(_probe) if os.geteuid() == 0 else _probe()
    detail, remedy = str(said["detail"]), str(said.get("remedy", ""))
    return Check("sandbox", "ok" if said.get("ok") else "failed", detail, remedy)


def _probe() -> dict[str, object]:
    from workers.supervisor.port import NotStarted
    from workers.supervisor.probe import probe_sandbox

    found = probe_sandbox()
    if isinstance(found, NotStarted):
        return {"ok": False, "detail": found.code, "remedy": found.message}
    return {"ok": True, "detail": f"strength {found.strength}: {', '.join(found.layers)}"}


def _as_unprivileged(question: Callable[[], dict[str, object]]) -> dict[str, object]:
    """Ask in a child that has given up root."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setresgid(SANDBOX_UID, SANDBOX_UID, SANDBOX_UID)
            os.setresuid(SANDBOX_UID, SANDBOX_UID, SANDBOX_UID)
            os.chdir("/")
            os.write(writing, json.dumps(question()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    if not said:
        return {
            "ok": False,
            "detail": f"no answer as the account {SANDBOX_UID}",
            "remedy": "run it as that account",
        }
    answer = json.loads(said)
    return answer if isinstance(answer, dict) else {"ok": False, "detail": said.decode()}


def check_ledger(directory: DataDirectory) -> list[Check]:
    """The ledger's settings as a live connection answers them, who claims, and what waits."""
    from gateway.reading import open_reading
    from gateway.store import horizon_of

    server = server_of(directory)
    if not server and not directory.ledger.exists():
        return [Check("ledger", "off", "none yet", "`interlock up` makes it")]
    try:
        with open_reading(directory) as reading:
            queues = check_queues(directory, reading.ledger)
            numbers = check_numbers(horizon_of(reading.ledger))
            settings = dict(reading.ledger.settings())
            if not server:
                settings["journal_mode"] = journal_mode(directory)
            with reading.ledger.read() as view:
                return [
                    judge_server(settings) if server else judge_settings(settings),
                    check_claimers(view, directory),
                    *check_backlog(view),
                    *numbers,
                    queues,
                    check_projection(reading.projection is not None, _stopped(reading), view.last_seq()),
                ]
    except InterlockError as error:
        return [Check("ledger", "failed", error.message, error.remedy)]


def journal_mode(directory: DataDirectory) -> str:
    """As the file says itself: a connection to a file that nobody has open does not look."""
    with open(directory.ledger, "rb") as file:
        header = file.read(FORMAT_PLACES.stop)
    return "wal" if header[FORMAT_PLACES] == WAL_FORMAT else "delete"


def judge_server(settings: Mapping[str, str]) -> Check:
    """The same of a PostgreSQL server."""
    shown = ", ".join(f"{name}={value}" for name, value in sorted(settings.items()))
    off = [name for name in DURABLE_SERVER if settings.get(name) == "off"]
    if off:
        return Check("ledger", "failed", shown, f"{', '.join(off)} must be on: commits may be lost")
    return Check("ledger", "ok", shown)


def judge_settings(settings: Mapping[str, str]) -> Check:
    """Whether what was committed survives a power cut, by the settings as read back."""
    shown = ", ".join(f"{name}={value}" for name, value in sorted(settings.items()))
    wrong = [name for name, value in DURABLE.items() if settings.get(name) != value]
    if wrong:
        return Check("ledger", "failed", shown, f"{', '.join(wrong)} must be as the ledger sets them")
    return Check("ledger", "ok", shown)


def check_claimers(view: LedgerView, directory: DataDirectory) -> Check:
    """Boots that never said that they ended, and whether their processes live."""
    from gateway.claimant import lock_probe

    boots, lock_is_free = view.boots(), lock_probe(directory)
    dead = [boot for boot in boots if lock_is_free(boot)]
    names = ", ".join(sorted(boot.role for boot in boots if boot not in dead))
    if dead:
        gone = ", ".join(f"{boot.role} ({boot.pid})" for boot in dead)
        return Check(
            "claimers", "degraded", f"ended without a word: {gone}", "the sweep takes their work back"
        )
    return Check("claimers", "ok" if boots else "off", names or "nobody claims")


def check_backlog(view: LedgerView) -> list[Check]:
    """How much stands in each phase, and for how long the oldest due row has been due."""
    counts = view.counts()
    held = ", ".join(f"{phase} {count}" for phase, count in sorted(counts.items())) or "nothing yet"
    unknown = counts.get("reconciliation_required", 0)
    oldest = view.due(view.now_us, 1)
    late_s = (view.now_us - oldest[0].at_us) / 1_000_000 if oldest else 0.0
    found = [Check("backlog", "ok", held)]
    if late_s > BACKLOG_SECONDS_HIGH:
        what = f"{oldest[0].what} of {oldest[0].kind}:{oldest[0].id} is due for {late_s:.0f} s"
        found = [Check("backlog", "degraded", f"{held}; {what}", "see that scheduler and governor run")]
    if unknown:
        remedy = "find out what happened: `interlock show ID`"
        found.append(Check("unknown_outcomes", "degraded", f"{unknown} wait for a person", remedy))
    return found


def check_numbers(horizon: Horizon | None) -> list[Check]:
    """Whether events get their numbers, without which nothing reads them; no check where they always do."""
    if horizon is None:
        return []
    if not horizon.is_late:
        return [Check("numbers", "ok", "events get their numbers at once")]
    waits = f"the oldest event has waited for its number for {horizon.waiting_s:.0f} s"
    if not horizon.is_held:
        return [Check("numbers", "degraded", waits, "see that a scheduler runs")]
    if horizon.pid is None:
        remedy = "end the transaction: pg_stat_activity and pg_prepared_xacts say which (backend_xid, oldest)"
        return [Check("numbers", "degraded", f"{waits}, behind an open transaction", remedy)]
    return [
        Check(
            "numbers",
            "degraded",
            f"{waits}, behind the open transaction of the server's process {horizon.pid}",
            f"end that transaction: SELECT pg_terminate_backend({horizon.pid})",
        )
    ]


def check_queues(directory: DataDirectory, ledger: Ledger) -> Check:
    """Whether anything waits on the queue of a client that is not registered: nobody takes it from there."""
    from gateway.wiring import broker_answers
    from governance.adapters.redis_intake.stray import stray_queues
    from governance.client_queue import ClientQueues
    from interlock.adapters.redis_client import connect

    if not broker_answers(directory):
        return Check("client_queues", "off", "no broker to look into")
    served, client = ClientQueues(ledger)(), connect(directory.broker_client_url)
    try:
        stray = stray_queues(client, served)
    finally:
        client.close()
    if stray:
        names = ", ".join(f"{name!a} ({count})" for name, count in sorted(stray.items())[:10])
        remedy = "register the client (`interlock principals add`), or remove the list from the broker"
        return Check("client_queues", "degraded", f"waits where nobody takes it: {names}", remedy)
    return Check("client_queues", "ok", f"{len(served)} clients have a queue of their own")


def check_projection(exists: bool, stopped: list[str], last_seq: int) -> Check:
    """Whether every session is folded."""
    if not exists:
        return Check("projection", "off", f"no views yet; the ledger holds {last_seq} events")
    if stopped:
        names = ", ".join(stopped[:10])
        return Check("projection", "failed", f"cannot be folded: {names}", "`interlock verify` says where")
    return Check("projection", "ok", "every session is folded")


def _stopped(reading: Reading) -> list[str]:
    return [] if reading.projection is None else [str(name) for name in sorted(reading.projection.stopped())]
