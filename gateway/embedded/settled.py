"""Runs work in a child that gave up root, so that this process can clear away what root made.

The child tells on standard error why it failed; nothing of it ever runs on in this process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from gateway.embedded.account import settle_account
from gateway.embedded.directory import DataDirectory
from interlock.errors import InterlockError


def run_settled(directory: DataDirectory, name: str, work: Callable[[], int]) -> int:
    """The exit status of `work`, run as the account of `directory`; `name` stands before its errors."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            settle_account(directory, os.environ)
            status = work()
        except InterlockError as error:
            print(f"{name}: {error}", file=sys.stderr)  # noqa: T201 - the child has no other face
        except Exception:  # noqa: BLE001 - the last frame of this process: nothing may reach the parent's
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    _, waited = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(waited)
