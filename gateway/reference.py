"""Writes the reference page of settings from where they are declared; reads source text, and sets nothing."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise

from interlock import settings
from interlock.settings import Settings

_HEAD = """\
# Settings

Written from `interlock/settings.py` by `gateway.reference.settings_page`; do not edit. Every setting is an
environment variable that is read once at the start; one that cannot be used ends the start with its name.
Times are in milliseconds. Started as root, the system keeps no other variables of root's than these and a few
of the terminal and the language.

## Where and as whom

| variable | default | meaning |
|---|---|---|
"""
_NUMBERS = """
## Numbers

| variable | default | meaning |
|---|---|---|
"""
_PLACES = (
    (
        "INTERLOCK_DATA",
        "root: `/var/lib/interlock/data`; else `interlock` in `XDG_STATE_HOME` or `~/.local/state`",
        "The data directory, where no `--data` names one.",
    ),
    ("INTERLOCK_UID", "`23917`", "The account that root is given up for."),
    (
        "INTERLOCK_EGRESS",
        "empty: nothing is reached",
        "Hosts that `http.fetch` may reach: `host:port`, not public `host:port@network+network`, by commas.",
    ),
    (
        "INTERLOCK_VALKEY_BIN",
        "the packaged server, else one on the PATH",
        "The broker's server program.",
    ),
    (
        "INTERLOCK_REPLICAS",
        "one of each",
        "How many processes of a role `up` starts: `governor=2,pool-shell=3`, each from 1 to 16.",
    ),
    (
        "INTERLOCK_LEDGER_URL",
        "SQLite in the data directory",
        "The ledger: `postgresql://user@host/database`. A directory keeps to the one that it was made with.",
    ),
    (
        "INTERLOCK_BROKER_URL",
        "the one that `up` runs",
        "The broker of roles that `run` starts, and of a pool started as a Celery worker: `redis://host/0`.",
    ),
    (
        "INTERLOCK_COMMAND",
        "`interlock`",
        "What the command line calls itself where it names a command; `./run` sets it.",
    ),
    ("NO_COLOR", "unset", "Set: no colours."),
)
_TAIL = """
## For tests only

Read only with `INTERLOCK_TESTING=1`: `INTERLOCK_FAULT`, `INTERLOCK_FAULT_LOG`, `INTERLOCK_FAULT_TIMES`,
`INTERLOCK_FAULT_ARMED` (faults on purpose) and `INTERLOCK_CLOCK_OFFSET_S` (a clock that is wrong). Refused
without it: `INTERLOCK_BACKOFF_MAX_MS`, the longest wait before a role that keeps ending is started again.
"""


def settings_page() -> str:
    """The text of `docs/reference/settings.md`."""
    said = dict(_said())
    places = [f"| `{name}` | {default} | {meaning} |" for name, default, meaning in _PLACES]
    rows = [
        f"| `INTERLOCK_{field.name.upper()}` | `{field.default}` | {said.get(field.name, '')} |"
        for field in fields(Settings)
    ]
    return "\n".join([_HEAD + "\n".join(places), _NUMBERS + "\n".join(rows), _TAIL])


def _said() -> Iterator[tuple[str, str]]:
    """Each field with the note that stands below it."""
    tree = ast.parse(inspect.getsource(settings))
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Settings").body
    for field, note in pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(note, ast.Expr)
            and isinstance(note.value, ast.Constant)
        ):
            yield field.target.id, " ".join(str(note.value.value).split())
