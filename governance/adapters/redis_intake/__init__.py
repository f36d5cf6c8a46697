"""The intake over a server of the Redis protocol: one script moves a batch, one pipeline ends it.

Works on Celery's own lists, its priorities included. Nothing is popped, and waiting touches no item.
Whoever reaches the broker can write anything there: what is no list and no entry is set aside and told.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, NamedTuple

from redis import Redis
from redis.client import Pipeline
from redis.exceptions import ResponseError

from governance.adapters.redis_intake.watch import ListWatch
from governance.intake import TAKE_SIZE_MAX, Reply, TakenBatch, TakenItem
from interlock.adapters.redis_client import broker_errors, kinds_kept
from interlock.answer import ANSWER_LIFE_SECONDS
from interlock.errors import BrokerUnavailableError

INDEX = "interlock:intake"
PRIORITY_SUFFIXES = ("", "\x06\x163", "\x06\x166", "\x06\x169")
"""How Celery names the lists of one queue; the first is the one that is used without priorities."""
RESULT_PREFIX = "celery-task-meta-"
REPLIES_MAX = 10_000
"""Answers that one reply list keeps for a producer that does not read."""
SLICE_SECONDS = 0.5
"""How long one wait is at most: the longest that a queue which is new may lie unseen."""
LOWER_SECONDS = 0.25
"""How long the lists of lower priorities may go unlooked at while there is enough on the others."""

_SEPARATOR = b"\0"
"""Stands between an item in a list of ours and the queue it came on; no queue's name holds it."""

_BOOT = re.compile(r"[A-Za-z0-9._-]{1,128}")
_ENTRY = re.compile(r"(t|h) ([0-9]{1,9}) (.{1,256})", re.DOTALL)

_LOG = logging.getLogger(__name__)


class RedisIntake:
    """An intake over two clients: `client` is bounded in time, `waiting` waits as long as it is told."""

    def __init__(
        self,
        client: Redis,
        waiting: Redis,
        *,
        boot: str,
        queues: Sequence[str],
        own_queues: Callable[[], Sequence[str]] = tuple,
        take_size_max: int = TAKE_SIZE_MAX,
        look_seconds: float = 1.0,
    ) -> None:
        """`own_queues` names those that are served besides now, as the same object until they change."""
        if not _BOOT.fullmatch(boot):
            raise ValueError(f"a boot id is 1 to 128 of A-Z a-z 0-9 . _ -, not {boot!r}")
        self._client, self._watch = client, ListWatch(waiting)
        self._boot = boot
        self._fixed, self._own_queues = tuple(queues), own_queues
        self._family = f"{queues[0]}.*"
        self._served = _Served.of(self._fixed, ())
        self._first, self._lower_at = 0, 0.0
        self._take_size_max = take_size_max
        # One boot may have several intakes, each with lists of its own.
        self._prefix = f"{boot}:{secrets.token_hex(4)}-"
        self._count, self._overs = 1, 0
        self._held: deque[str] = deque()
        self._look_seconds, self._look_at = look_seconds, 0.0
        self._take, self._again, self._takeover = (
            client.register_script(_script(name)) for name in ("take", "again", "takeover")
        )

    # --- taking ---

    def take(self, limit: int, block_seconds: float) -> TakenBatch:
        give_up_at = time.monotonic() + block_seconds
        while True:
            batch = self._once(limit)
            remaining = give_up_at - time.monotonic()
            if batch.items or remaining <= 0:
                return batch
            with self._errors():
                if not self._watch.wait(self._served.lists, min(remaining, SLICE_SECONDS)):
                    return batch

    def _once(self, limit: int) -> TakenBatch:
        return self._from_held() or self._from_queues(limit)

    def _from_held(self) -> TakenBatch | None:
        while self._held:
            field = self._held[0]
            with self._errors():
                found = self._again(keys=[INDEX, self._list, _list_of(field)], args=[self._field, field])
            batch = self._batch(found)
            if batch.items:
                return batch
            self._held.popleft()
        return None

    def _from_queues(self, limit: int) -> TakenBatch:
        own = self._own_queues()
        if own is not self._served.own:
            self._served = _Served.of(self._fixed, own)
        served, now = self._served, time.monotonic()
        lower = served.lower_json if now >= self._lower_at else b""
        with self._errors():
            found = self._take(
                keys=[INDEX, self._list],
                args=[
                    self._field,
                    limit,
                    self._take_size_max,
                    f"t 1 {self._family}",
                    self._first,
                    served.queues_json,
                    lower,
                ],
            )
        at_us, entry, first, lower_count, *items = found
        self._first = int(first)
        if lower:
            # Where there is nothing else to do they are looked at every time.
            self._lower_at = now if int(lower_count) or not items else now + LOWER_SECONDS
        elif not items:
            self._lower_at = now
            return self._from_queues(limit)
        return self._batch([at_us, entry, *items])

    def _batch(self, found: list[bytes]) -> TakenBatch:
        at_us, entry, *items = found
        if not items:
            return TakenBatch("", (), int(at_us))
        name = self._list
        self._count += 1  # only now: a call whose answer was lost must find its list again
        _, deliveries, owner = _entry(entry) or _Entry("t", 1, self._family)
        if owner != self._family:  # a list of before items said whence they came
            return TakenBatch(name, tuple(TakenItem(raw, owner, deliveries) for raw in items), int(at_us))
        taken = []
        for item in items:
            queue, _, raw = item.partition(_SEPARATOR)
            taken.append(TakenItem(raw, self._served.name(queue), deliveries))
        return TakenBatch(name, tuple(taken), int(at_us))

    # --- ending ---

    def done(self, batch: TakenBatch, replies: Sequence[Reply] = ()) -> None:
        with broker_errors(), self._client.pipeline(transaction=False) as pipeline:
            _add_replies(pipeline, replies)
            pipeline.delete(batch.name)
            pipeline.hdel(INDEX, _field_of(batch.name))
            _execute(pipeline, must_succeed=2)

    def give_back(self, batch: TakenBatch) -> None:
        if not batch.items:
            return
        with broker_errors():
            entry = self._client.hget(INDEX, _field_of(batch.name))
            owner = _entry(entry) if isinstance(entry, bytes) else None
            queue = self._family if owner is None else owner.queue
            held = f"h {batch.items[0].deliveries - 1} {queue}"
            self._client.hset(INDEX, _field_of(batch.name), held)
        self._held.append(_field_of(batch.name))

    def answer(self, replies: Sequence[Reply]) -> None:
        if not replies:
            return
        with broker_errors(), self._client.pipeline(transaction=False) as pipeline:
            _add_replies(pipeline, replies)
            _execute(pipeline, must_succeed=0)

    # --- taking over ---

    def takeover(self, is_dead: Callable[[str], bool]) -> list[TakenBatch]:
        if not self._held and time.monotonic() >= self._look_at:
            self._look(is_dead)
            self._look_at = time.monotonic() + self._look_seconds
        batch = self._from_held()
        return [] if batch is None else [batch]

    def _look(self, is_dead: Callable[[str], bool]) -> None:
        ours = {field: entry for field, entry in self._index().items() if self._is_ours(entry)}
        boots = {field.rpartition(":")[0] for field in ours} - {self._boot}
        dead = {boot for boot in boots if is_dead(boot)}
        for field in sorted(ours):
            if field.rpartition(":")[0] in dead:
                self._take_over(field)
            elif field.startswith(self._prefix) and ours[field].state == "h" and field not in self._held:
                self._held.append(field)  # its take-over went unheard

    def _is_ours(self, entry: _Entry) -> bool:
        return entry.queue == self._family or entry.queue in self._fixed

    def _take_over(self, field: str) -> None:
        # Never the next batch's name: that one may stand already, moved by a call whose answer was lost.
        self._overs += 1
        own = f"{self._prefix}over-{self._overs}"
        with self._errors():
            items = self._takeover(keys=[INDEX, _list_of(field), _list_of(own)], args=[field, own])
        if items:
            self._held.append(own)

    def _index(self) -> dict[str, _Entry]:
        with self._errors():
            index: dict[Any, Any] = self._client.hgetall(INDEX)
            read = {field: _entry_of(field, entry) for field, entry in index.items()}
            bad = [field for field, entry in read.items() if entry is None]
            if bad:
                _LOG.error("dropped %d entries of %s that are none", len(bad), INDEX)
                self._client.hdel(INDEX, *bad)
        return {field.decode(): entry for field, entry in read.items() if entry is not None}

    def _errors(self) -> AbstractContextManager[None]:
        return kinds_kept(self._client, {INDEX: b"hash", **dict.fromkeys(self._served.lists, b"list")})

    def now_us(self) -> int:
        with broker_errors():
            seconds, microseconds = self._client.time()
        return seconds * 1_000_000 + microseconds

    @property
    def _field(self) -> str:
        """Of the next list."""
        return f"{self._prefix}{self._count}"

    @property
    def _list(self) -> str:
        return _list_of(self._field)


class _Entry(NamedTuple):
    state: str
    """`t` taken, `h` taken over or given back, and not handed out."""
    deliveries: int
    queue: str
    """The family of queues that its items came on, each with its own; or, of before, their one queue."""


class _Served(NamedTuple):
    """The queues of one moment, in the forms in which they are needed again and again."""

    own: Sequence[str]
    """As they were given."""
    lists: tuple[str, ...]
    """All lists that are waited on."""
    queues_json: bytes
    lower_json: bytes
    names: dict[bytes, str]

    @classmethod
    def of(cls, fixed: Sequence[str], own: Sequence[str]) -> _Served:
        queues = tuple(dict.fromkeys((*fixed, *own)))
        lower = [queue + suffix for queue in queues for suffix in PRIORITY_SUFFIXES[1:]]
        names = {queue.encode(): queue for queue in queues}
        return cls(own, (*queues, *lower), _json(queues), _json(lower), names)

    def name(self, queue: bytes) -> str:
        """Also of one that is served no more."""
        return self.names.get(queue) or queue.decode(errors="replace")


def _json(names: Sequence[str]) -> bytes:
    return json.dumps(list(names)).encode()


def _script(name: str) -> str:
    return files("governance.adapters.redis_intake").joinpath(f"{name}.lua").read_text(encoding="utf-8")


def _field_of(name: str) -> str:
    return name.removeprefix(f"{INDEX}:")


def _list_of(field: str) -> str:
    return f"{INDEX}:{field}"


def _entry(entry: bytes) -> _Entry | None:
    """An entry of the index, None where it is none."""
    found = _ENTRY.fullmatch(entry.decode(errors="replace"))
    return None if found is None else _Entry(found[1], int(found[2]), found[3])


def _entry_of(field: bytes, entry: bytes) -> _Entry | None:
    """Likewise, where its field is no boot's either."""
    boot, colon, _ = field.partition(b":")
    is_field = bool(colon) and _BOOT.fullmatch(boot.decode(errors="replace")) is not None
    return _entry(entry) if is_field and field.isascii() else None


def _add_replies(pipeline: Pipeline, replies: Sequence[Reply]) -> None:
    lists: dict[str, list[bytes]] = {}
    for reply in replies:
        data = reply.answer.to_bytes()
        if reply.reply_to is not None:
            lists.setdefault(reply.reply_to, []).append(data)
        if reply.task_id is not None:
            _add_result(pipeline, reply.task_id, data)
    for name, answers in lists.items():
        pipeline.lpush(name, *answers)
        pipeline.ltrim(name, 0, REPLIES_MAX - 1)
        pipeline.expire(name, ANSWER_LIFE_SECONDS)


def _add_result(pipeline: Pipeline, task_id: str, answer: bytes) -> None:
    """As Celery's own Redis backend stores one: a value that ends, and a message to who waits."""
    key = RESULT_PREFIX + task_id
    done_at = datetime.now(UTC).isoformat()
    meta = (
        b'{"status":"SUCCESS","result":%s,"traceback":null,"children":[],"date_done":"%s","task_id":%s}'
        % (answer, done_at.encode(), json.dumps(task_id).encode())
    )
    pipeline.set(key, meta, ex=ANSWER_LIFE_SECONDS)
    pipeline.publish(key, meta)


def _execute(pipeline: Pipeline, *, must_succeed: int) -> None:
    """Run it; an answer that its own list refuses is its reader's loss, the last `must_succeed` are not."""
    outcomes: list[Any] = pipeline.execute(raise_on_error=False)
    for outcome in outcomes[len(outcomes) - must_succeed :]:
        if isinstance(outcome, ResponseError):
            raise BrokerUnavailableError(str(outcome))
