"""Registers many catalogues from one file, a line each, a few hundred tools in one transaction of the ledger.

Every catalogue is all or none by itself; one that is refused takes no other with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, BinaryIO

from gateway.cli.file import numbered_lines
from gateway.cli.output import Output, complain
from gateway.cli.verdict import Exit
from gateway.embedded.directory import DataDirectory
from gateway.reading import open_for_writing
from gateway.wiring import wake_relay
from governance.catalogue import CATALOGUE_BYTES_MAX, Bundled, add_catalogues, read_bundled
from governance.ledger import Ledger
from governance.principal import LOCAL_OPERATOR
from interlock.decision import Reason
from interlock.errors import InterlockError, NotJsonError
from interlock.tier import Tier

TOOLS_TOGETHER = 300
"""Tools of one transaction: the ledger is held for about as long as one batch of proposals holds it."""
_Read = list[tuple[int, Bundled]]


class _Import:
    """What became of the catalogues so far."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.counts: Counter[str] = Counter()
        self.refused: list[dict[str, Any]] = []

    def add(self, ledger: Ledger, read: _Read, replace: bool) -> None:
        """Record these together, and say of each what became of it."""
        tools = [bundled.tools for _, bundled in read]
        every = add_catalogues(ledger, tools, added_by=LOCAL_OPERATOR, replace=replace)
        for (number, bundled), added in zip(read, every, strict=True):
            if added.refused:
                self.refuse(number, bundled.catalogue, added.refused)
                continue
            self.counts["catalogues"] += 1
            self.counts["added"] += len(added.names) - len(added.replaced)
            self.counts["replaced"] += len(added.replaced)
            self.counts["unchanged"] += len(bundled.tools) - len(added.names)

    def refuse(self, number: int, catalogue: str, reasons: list[Reason]) -> None:
        """Note what is against one catalogue, a line on standard error for each reason."""
        for reason in reasons:
            self.refused.append({"line": number, "catalogue": catalogue, **reason.to_json()})
            at = f" at {reason.pointer}" if reason.pointer else ""
            complain(str(InterlockError(reason.code, f"line {number}: {reason.sentence}{at}")))

    def say(self) -> None:
        """The sum of it all."""
        names = ("catalogues", "added", "replaced", "unchanged")
        counts = {name: self.counts[name] for name in names}
        if self._output.as_json:
            self._output.json({"ok": not self.refused, **counts, "refused": self.refused})
            return
        refused = len({found["line"] for found in self.refused})
        self._output.text(
            f"{counts['catalogues']} catalogues: {counts['added']} tools added, {counts['replaced']} replaced"
            f", {counts['unchanged']} unchanged; {refused} catalogues refused"
        )


def add_bundle(
    directory: DataDirectory, stream: BinaryIO, tier: Tier | None, replace: bool, output: Output
) -> int:
    """Register every catalogue of the file that nothing is against; the exit code."""
    result = _Import(output)
    with open_for_writing(directory) as ledger:
        for read in _together(stream, tier, result):
            result.add(ledger, read, replace)
            wake_relay(directory)
    result.say()
    return Exit.ERROR if result.refused else Exit.OK


def _together(stream: BinaryIO, tier: Tier | None, result: _Import) -> Iterator[_Read]:
    """Catalogues in portions that no name stands in twice."""
    read: _Read = []
    for number, line in numbered_lines(stream, CATALOGUE_BYTES_MAX):
        bundled = _bundled(line, tier)
        if bundled.refused:
            result.refuse(number, bundled.catalogue, bundled.refused)
            continue
        if bundled.catalogue in {other.catalogue for _, other in read}:
            yield read
            read = []
        read.append((number, bundled))
        if sum(len(one.tools) for _, one in read) >= TOOLS_TOGETHER:
            yield read
            read = []
    if read:
        yield read


def _bundled(line: bytes | NotJsonError, tier: Tier | None) -> Bundled:
    try:
        if isinstance(line, NotJsonError):
            raise line
        return read_bundled(line, tier=tier)
    except NotJsonError as error:
        return Bundled("", [], [Reason(code=error.code, sentence=error.message[:512])])
