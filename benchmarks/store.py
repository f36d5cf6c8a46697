"""The stores that the governed side is measured on, each opened through its port as the product opens it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from benchmarks.checkout import environment
from benchmarks.plan import POSTGRESQL, SQLITE
from benchmarks.postgres import Server, postgres_server
from interlock.clock import SystemClock

if TYPE_CHECKING:
    from gateway.embedded.directory import DataDirectory
    from governance.ledger import Ledger
    from interlock.projection import Checkpoint

LEDGER_URL, BROKER_URL = "INTERLOCK_LEDGER_URL", "INTERLOCK_BROKER_URL"
"""The product's own variables; absent are SQLite in the data directory, and a broker of its own."""


class Views(Protocol):
    """As much of a projection as is looked at."""

    def checkpoint(self) -> Checkpoint: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Store:
    """One store: SQLite in the directory of the system, or a database of a server."""

    name: str
    url: str | None = None
    server: Server | None = None

    def environment(self) -> dict[str, str]:
        """This process's environment for a system that keeps its ledger here."""
        ours = (LEDGER_URL, BROKER_URL)
        kept = {name: value for name, value in environment().items() if name not in ours}
        return kept if self.url is None else {**kept, LEDGER_URL: self.url}

    def ledger(self, directory: DataDirectory, *, read_only: bool = True) -> Ledger:
        """The ledger, to be read if nothing else is said; its owner closes it."""
        if self.url is not None:
            from governance.adapters.postgres_ledger import PostgresLedger

            return PostgresLedger.open(self.url, SystemClock(), read_only=read_only)
        from governance.adapters.sqlite_ledger import SqliteLedger

        return SqliteLedger.open(directory.ledger, SystemClock(), read_only=read_only)

    def views(self, directory: DataDirectory) -> Views:
        """The projection, to be read; its owner closes it."""
        if self.url is not None:
            from workers.adapters.postgres_projection import PostgresProjection

            return PostgresProjection.open(self.url, read_only=True)
        from workers.adapters.sqlite_projection import SqliteProjection

        return SqliteProjection.open(directory.views, read_only=True)

    def server_settings(self) -> Mapping[str, str] | None:
        """What the database server answers of itself; None without one."""
        return None if self.server is None else self.server.settings()

    @property
    def server_pids(self) -> tuple[int, ...]:
        """The process above all of the server's, where it is ours."""
        return (self.server.pid,) if self.server is not None and self.server.pid is not None else ()


@contextmanager
def open_stores(names: tuple[str, ...], folder: Path, settings: Mapping[str, str]) -> Iterator[list[Store]]:
    """The named stores, in order; a database server among them runs until the end of the block."""
    with ExitStack() as entered:
        stores = []
        for name in names:
            if name == SQLITE:
                stores.append(Store(SQLITE))
            else:
                server = entered.enter_context(postgres_server(folder / "pg", settings))
                url = entered.enter_context(server.database("interlock_bench"))
                stores.append(Store(POSTGRESQL, url, server))
        yield stores
