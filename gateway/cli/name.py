"""How this command line was called, so that every command that it names can be typed as it stands.

`./run` says its own name in INTERLOCK_COMMAND; an installation has `interlock` on its path.
"""

from __future__ import annotations

import os
import re

VARIABLE = "INTERLOCK_COMMAND"
OWN = "interlock"
_PLAIN = re.compile(r"[A-Za-z0-9._/+-]{1,200}\Z")
_NAMED = re.compile(rf"`{OWN} (?=[a-z])")


def command_name() -> str:
    """How a person here calls this program."""
    said = os.environ.get(VARIABLE, "")
    return said if _PLAIN.match(said) else OWN


def as_called(text: str) -> str:
    """The text with every command that it quotes called as it is called here."""
    name = command_name()
    return text if name == OWN else _NAMED.sub(f"`{name} ", text)
