"""Entries of the stream, as plain as they come."""

from __future__ import annotations

from interlock.stream import StreamEntry


def an_entry(
    seq: int, *, incarnation: str = "ledger-1", session: str = "s-1", content: str = ""
) -> StreamEntry:
    """The entry of event `seq`; another `content` gives another hash."""
    digest = f"{seq:032x}{content:>032}"[:64]
    return StreamEntry(
        seq,
        incarnation,
        "invocation",
        f"i-{seq}",
        1,
        "ToolInvocationRequested",
        session,
        "default",
        seq,
        digest,
    )


def entries(first: int, last: int) -> list[StreamEntry]:
    """Entries `first` to `last`, both included."""
    return [an_entry(seq) for seq in range(first, last + 1)]
