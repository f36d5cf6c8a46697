"""Ledgers of released formats as they were when they were released: rows of their own time, and their keys.

`python -m tests.integration.migration.released` keeps the formats that are declared now: once, the day they
are released. A kept file is never made again.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from governance.adapters.migration import Location, upgrade
from governance.keys import KeyPurpose

FOLDER = Path(__file__).parent / "released"
TABLES = (
    "tool_event", "event_seq", "sequencer", "head", "due", "idempotency", "denial", "contract", "boot",
    "control", "meta",
)  # fmt: skip
FIRST_XID = 3

Keys = dict[KeyPurpose, list[tuple[str, str]]]


def load(location: Location, kind: str, released: int) -> Keys:
    """Make this ledger in an empty place, by the steps of its format; the keys it is verified by."""
    kept = json.loads((FOLDER / f"{kind}-{released}.json").read_bytes())
    upgrade(location, until=released)
    with _connected(location) as (connection, mark):
        for table, content in kept["rows"].items():
            if table in ("meta", "control", "sequencer"):
                connection.execute(f"DELETE FROM {table}")
            names = ", ".join(content["columns"])
            marks = ", ".join([mark] * len(content["columns"]))
            for row in content["rows"]:
                connection.execute(
                    f"INSERT INTO {table} ({names}) VALUES ({marks})", [_read(value) for value in row]
                )
        if kind == "postgres":
            connection.execute("SELECT setval('tool_event_ord', (SELECT max(ord) FROM tool_event))")
    return {KeyPurpose(name): [(kid, key) for kid, key in keys] for name, keys in kept["keys"].items()}


def keep(location: Location, kind: str, released: int, keys: Keys) -> None:
    """Write down all rows of a ledger. Transaction ids become the smallest, in order, for any server."""
    rows: dict[str, Any] = {}
    with _connected(location) as (connection, _):
        for table in TABLES if kind == "postgres" else [t for t in TABLES if t not in TABLES[1:3]]:
            cursor = connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2")
            columns = [column[0] for column in cursor.description]
            rows[table] = {"columns": columns, "rows": [list(row) for row in cursor.fetchall()]}
    if kind == "postgres":
        _renumber([rows[table] for table in TABLES[:3]])
    content = {
        "keys": {purpose.value: said for purpose, said in keys.items()},
        "rows": {
            table: {**said, "rows": [[_write(value) for value in row] for row in said["rows"]]}
            for table, said in rows.items()
        },
    }
    (FOLDER / f"{kind}-{released}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="ascii")


def _renumber(tables: Sequence[dict[str, Any]]) -> None:
    places = [(table, table["columns"].index("xid")) for table in tables]
    known = sorted({int(row[place]) for table, place in places for row in table["rows"]})
    small = {old: str(new) for new, old in enumerate(known, FIRST_XID)}
    for table, place in places:
        for row in table["rows"]:
            row[place] = small[int(row[place])]


def _write(value: Any) -> Any:
    return {"hex": bytes(value).hex()} if isinstance(value, (bytes, memoryview)) else value


def _read(value: Any) -> Any:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value


@contextmanager
def _connected(location: Location) -> Iterator[tuple[Any, str]]:
    if isinstance(location, Path):
        with closing(sqlite3.connect(location)) as connection, connection:
            yield connection, "?"
    else:
        with psycopg.connect(location) as server:
            yield server, "%s"


def _keep_all() -> None:
    from tests.integration.migration.conftest import Place, fill
    from tests.support.postgres import postgres_server

    FOLDER.mkdir(exist_ok=True)
    with postgres_server() as server, tempfile.TemporaryDirectory() as folder:
        for place in (
            Place("sqlite", Path(folder) / "a.db", Path(folder) / "b.db"),
            Place("postgres", server.url(), ""),
        ):
            place.open(create=True).close()
            made = fill(place)
            keep(place.location, place.kind, made.ledger.info.schema_version, dict(made.public_keys))
            made.ledger.close()


if __name__ == "__main__":
    _keep_all()
