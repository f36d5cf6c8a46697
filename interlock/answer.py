"""What an intake says about one proposal: whether the ledger has it, where it stands, and why not.

A value that travels to a reply list or into Celery's result; it holds no arguments and grants nothing.
"""

from __future__ import annotations

from typing import Literal

from interlock.canonical import parse_json
from interlock.decision import Reason
from interlock.errors import NotJsonError
from interlock.word import Word

ANSWER_SIZE_MAX = 16_384
ANSWER_LIFE_SECONDS = 600


class Answer(Word):
    """The governor's answer to one proposal, vote or cancellation."""

    v: Literal[1] = 1
    invocation_id: str | None = None
    """None where no id could be found in what was sent."""
    status: Literal["accepted", "refused", "duplicate"]
    """`duplicate`: the ledger had it already; what follows is where that one stands."""
    phase: str = ""
    """Phase of the invocation when the answer was given; "" where the ledger holds none."""
    code: str = ""
    """Stable code of a refusal, "" otherwise."""
    sentence: str = ""
    seq: int = 0
    """Sequence number of its request in the ledger, where the intake knows it; 0 otherwise."""

    @property
    def is_recorded(self) -> bool:
        """Whether the ledger has the invocation, be it accepted or recorded as refused."""
        return self.phase != ""

    @classmethod
    def refusing(cls, invocation_id: str | None, reason: Reason) -> Answer:
        """A refusal of what the ledger does not hold."""
        return cls(
            invocation_id=invocation_id, status="refused", code=reason.code, sentence=reason.sentence[:1_024]
        )


def read_answer(data: bytes) -> Answer:
    """An answer as it came from a reply list; raises NotJsonError or pydantic's ValidationError."""
    value = parse_json(data, size_bytes_max=ANSWER_SIZE_MAX)
    if not isinstance(value, dict):
        raise NotJsonError("JSON_TYPE", "an answer is an object")
    return Answer.from_json(value)
