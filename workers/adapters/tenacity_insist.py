"""Writes an outcome again until it is written. Stands around writing only, never around an effect."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_exponential_jitter

from interlock.errors import CommitUnknownError, LedgerUnavailableError

Written = TypeVar("Written")
_LOG = logging.getLogger("interlock.report")


class TenacityInsist:
    """Calls a write until it succeeds, or until there is no time left for it."""

    def __init__(
        self, given_up: threading.Event, first_seconds: float = 0.05, most_seconds: float = 1.0
    ) -> None:
        self._given_up = given_up
        self._retrying = Retrying(
            retry=retry_if_exception_type((LedgerUnavailableError, CommitUnknownError)),
            wait=wait_exponential_jitter(multiplier=first_seconds, max=most_seconds, jitter=first_seconds),
            stop=lambda _state: given_up.is_set(),
            sleep=lambda seconds: self._pause(seconds),
            before_sleep=_tell,
            reraise=True,
        )

    def __call__(self, write: Callable[[], Written]) -> Written:
        """What `write` returns; raises its last error once given up."""
        return self._retrying.copy()(write)

    def _pause(self, seconds: float) -> None:
        self._given_up.wait(seconds)


def _tell(state: RetryCallState) -> None:
    if state.attempt_number == 1 and state.outcome is not None:
        _LOG.warning("an outcome was not written yet: %s", state.outcome.exception())
