"""Tells whether the process behind a claim may still live, as far as that can be known from here.

A free or missing file lock proves a death only on the host whose processes lock in this directory; whoever
claims elsewhere may live until it says otherwise, or was silent for so long that the sweep forgot it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from gateway.embedded.directory import DataDirectory
from governance.ledger import Boot, LedgerView
from workers.lease import is_boot_alive


def is_of_this_host(boot: Boot) -> bool:
    """Whether its file lock lies where it can be tried."""
    return boot.host.partition(":")[0] == socket.gethostname()


def lock_probe(directory: DataDirectory) -> Callable[[Boot], bool | None]:
    """Says of a boot whether its lock is free; None where its lock lies elsewhere."""

    def is_free(boot: Boot) -> bool | None:
        return not is_boot_alive(directory.boots, boot.boot_id) if is_of_this_host(boot) else None

    return is_free


def life_probe(directory: DataDirectory, view: LedgerView) -> Callable[[str], bool]:
    """Says of a boot's id whether its process may live, by the boots of this reading."""
    elsewhere = {boot.boot_id for boot in view.boots() if not is_of_this_host(boot)}
    return lambda boot_id: boot_id in elsewhere or is_boot_alive(directory.boots, boot_id)
