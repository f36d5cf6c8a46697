"""The known tools whose names are nearest to one that nobody knows. Guesses nothing for anybody."""

from __future__ import annotations

from difflib import get_close_matches

from governance.ledger import LedgerView
from interlock.event import StreamKind

TOOLS_MAX = 20_000
SHOWN = 3


def nearest_tools(view: LedgerView, name: str) -> list[str]:
    """At most three names: those that end in this one after their catalogue first, then similar ones."""
    names = [head.id for head in view.heads_of(StreamKind.TOOL.value, limit=TOOLS_MAX)]
    same = [known for known in names if known.rpartition("/")[2] == name.rpartition("/")[2]]
    return list(dict.fromkeys([*same, *get_close_matches(name, names, n=SHOWN)]))[:SHOWN]
