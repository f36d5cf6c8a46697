"""THE WORDS: what is proposed, decided, permitted, executed and recorded. Imports nothing of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interlock.async_client import AsyncClient
    from interlock.client import Client

__all__ = ["AsyncClient", "Client", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`interlock.Client` and `interlock.AsyncClient`, whose transport is loaded only where it is used."""
    if name == "Client":
        from interlock.client import Client

        return Client
    if name == "AsyncClient":
        from interlock.async_client import AsyncClient

        return AsyncClient
    raise AttributeError(name)
