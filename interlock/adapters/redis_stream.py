"""The stream of events in a server of the Redis protocol, and how far the projection is.

Every write is one script, guarded by the stream's last entry, so a late writer can do no harm. It never looks
into a body, and keeps nothing that the ledger does not have.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from redis import Redis
from redis.client import PubSub
from redis.exceptions import NoScriptError

from interlock.adapters.redis_client import broker_errors, kinds_kept
from interlock.errors import BrokerUnavailableError
from interlock.stream import (
    EMPTY,
    ENTRY_VERSION,
    PROJECTED,
    READERS,
    STREAM,
    WINDOW_BYTES,
    StreamEntry,
    StreamTail,
)

_VERSION = str(ENTRY_VERSION).encode()
_FIELDS = (b"v", b"i", b"k", b"s", b"n", b"t", b"e", b"a", b"m", b"h")

# Where a stream ends: {seq, incarnation, hash} of its last entry, or seq 0. `position` is what the next entry
# must follow: the seq, or where a stream without an entry was restarted. A stream whose end was cut off (by
# XDEL or XTRIM) counts as emptied; it would refuse what comes next, so nothing fits before a restart.
_TAIL = """
local function tail_of(key)
  if redis.call('EXISTS', key) == 0 then return 0, 0, '', '' end
  local position, added
  local info = redis.call('XINFO', 'STREAM', key)
  for at = 1, #info, 2 do
    if info[at] == 'last-generated-id' then position = info[at + 1] end
    if info[at] == 'entries-added' then added = info[at + 1] end
  end
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  if not last then
    if added > 0 then return 0, -1, '', '' end
    return 0, tonumber(string.match(position, '^%d+')), '', ''
  end
  if last[1] ~= position then return 0, -1, '', '' end
  local seq = tonumber(string.match(position, '^%d+'))
  local found = {}
  for at = 1, #last[2], 2 do found[last[2][at]] = last[2][at + 1] end
  if not found['v'] or not found['i'] or not found['h'] then return seq, seq, '', '' end
  return seq, seq, found['i'], found['h']
end
"""

_READ_TAIL = (
    _TAIL
    + """
local seq, _, incarnation, hash = tail_of(KEYS[1])
return {seq, incarnation, hash}
"""
)

# ARGV: seq, incarnation and hash of what the stream must end with; then 11 values an entry (id, 10 fields).
_PUBLISH = (
    _TAIL
    + """
local seq, position, incarnation, hash = tail_of(KEYS[1])
local fits = position == tonumber(ARGV[1])
if seq > 0 then fits = fits and incarnation == ARGV[2] and hash == ARGV[3] end
if not fits then return {seq, incarnation, hash} end
for at = 4, #ARGV, 11 do
  redis.call('XADD', KEYS[1], ARGV[at], 'v', ARGV[at + 1], 'i', ARGV[at + 2], 'k', ARGV[at + 3],
    's', ARGV[at + 4], 'n', ARGV[at + 5], 't', ARGV[at + 6], 'e', ARGV[at + 7], 'a', ARGV[at + 8],
    'm', ARGV[at + 9], 'h', ARGV[at + 10])
end
seq, position, incarnation, hash = tail_of(KEYS[1])
return {seq, incarnation, hash}
"""
)

_RESTART = (
    _TAIL
    + """
local seq = tail_of(KEYS[1])
if seq ~= tonumber(ARGV[2]) then return 0 end
redis.call('DEL', KEYS[1])
if ARGV[1] ~= '0' then
  redis.call('XGROUP', 'CREATE', KEYS[1], 'restart', '0', 'MKSTREAM')
  redis.call('XGROUP', 'DESTROY', KEYS[1], 'restart')
  redis.call('XSETID', KEYS[1], ARGV[1] .. '-0')
end
return 1
"""
)

_NOW = """
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)
"""

_REGISTER = (
    _NOW
    + """
return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ':' .. string.format('%.0f', now_ms + ARGV[3]))
"""
)

# The slowest reader whose lease, in the server's own time, still runs; the others are struck off.
_SLOWEST = (
    _NOW
    + """
local function slowest_of(key)
  local slowest
  local readers = redis.call('HGETALL', key)
  for at = 1, #readers, 2 do
    local seq, until_ms = string.match(readers[at + 1], '^(%d+):(%d+)$')
    if not seq or tonumber(until_ms) < now_ms then
      redis.call('HDEL', key, readers[at])
    elseif not slowest or tonumber(seq) < slowest then
      slowest = tonumber(seq)
    end
  end
  return slowest
end
"""
)

_READ_SLOWEST = _SLOWEST + "return slowest_of(KEYS[1])\n"

_TRIM = (
    _TAIL
    + _SLOWEST
    + """
local seq = tail_of(KEYS[1])
if seq == 0 then return 0 end
local window = tonumber(ARGV[1])
local used = redis.call('MEMORY', 'USAGE', KEYS[1])
if used > tonumber(ARGV[2]) then
  window = math.min(window, math.floor(redis.call('XLEN', KEYS[1]) * ARGV[2] / used))
end
local first = math.max(seq - window, slowest_of(KEYS[2]) or 0) + 1
return redis.call('XTRIM', KEYS[1], 'MINID', string.format('%.0f', math.min(first, seq)) .. '-0')
"""
)


class _Script:
    """One script, sent by its digest and in full only to a server that does not know it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._digest = _sha1(text)

    def run(self, client: Redis, keys: Sequence[str], arguments: Sequence[str | int]) -> Any:
        try:
            return client.evalsha(self._digest, len(keys), *keys, *arguments)
        except NoScriptError:
            return client.eval(self._text, len(keys), *keys, *arguments)


class RedisEventStream:
    """EventStream over two clients: `client` is bounded in time, `reader` waits for entries."""

    def __init__(self, client: Redis, reader: Redis, *, stream: str = STREAM, readers: str = READERS) -> None:
        self._client, self._reader = client, reader
        self._stream, self._readers = stream, readers
        self._tail, self._publish, self._restart = _Script(_READ_TAIL), _Script(_PUBLISH), _Script(_RESTART)
        self._register, self._slowest, self._trim = (
            _Script(_REGISTER),
            _Script(_READ_SLOWEST),
            _Script(_TRIM),
        )

    def tail(self) -> StreamTail:
        with self._errors():
            return _tail(self._tail.run(self._client, [self._stream], []))

    def publish(self, entries: Sequence[StreamEntry], *, after: StreamTail) -> StreamTail:
        """Entries must fit one command: some thousands."""
        arguments: list[str | int] = [after.seq, after.incarnation, after.hash]
        for entry in entries:
            arguments += (f"{entry.seq}-0", ENTRY_VERSION, *entry[1:])
        with self._errors():
            return _tail(self._publish.run(self._client, [self._stream], arguments))

    def restart(self, *, after: int, last: int) -> bool:
        with self._errors():
            return bool(self._restart.run(self._client, [self._stream], [after, last]))

    def read(self, after: int, limit: int, block_ms: int) -> list[StreamEntry]:
        with self._errors():
            answer = self._reader.xread({self._stream: f"{after}-0"}, count=limit, block=block_ms or None)
        return _entries(answer)

    def register(self, reader: str, seq: int, lease_ms: int) -> None:
        with self._errors():
            self._register.run(self._client, [self._readers], [reader, seq, lease_ms])

    def slowest(self) -> int | None:
        with self._errors():
            answer = self._slowest.run(self._client, [self._readers], [])
        return None if answer is None else int(answer)

    def trim(self, *, entries_max: int, bytes_max: int = WINDOW_BYTES) -> int:
        with self._errors():
            keys = [self._stream, self._readers]
            return int(self._trim.run(self._client, keys, [entries_max, bytes_max]))

    def _errors(self) -> AbstractContextManager[None]:
        return kinds_kept(self._client, {self._stream: b"stream", self._readers: b"hash"})


class RedisProjectionNotice:
    """ProjectionNotice as a key that holds the seq and a channel of the same name that tells of it."""

    def __init__(self, client: Redis, *, key: str = PROJECTED) -> None:
        self._client, self._key = client, key

    def announce(self, seq: int) -> None:
        try:
            with broker_errors(), self._client.pipeline(transaction=False) as pipeline:
                pipeline.set(self._key, seq)
                pipeline.publish(self._key, seq)
                pipeline.execute()
        except BrokerUnavailableError:
            return  # what was projected is projected; who waits asks again by itself

    def projected(self) -> int:
        with broker_errors():
            value = self._client.get(self._key)
        return int(value) if isinstance(value, bytes) and value.isdigit() else 0

    def wait(self, seq: int, seconds: float) -> bool:
        """Raises BrokerUnavailableError."""
        give_up_at = time.monotonic() + seconds
        with broker_errors(), self._channel() as channel:
            channel.subscribe(self._key)
            channel.get_message(timeout=seconds)  # the confirmation: from here on nothing is missed
            known = self.projected()
            while known < seq and (left := give_up_at - time.monotonic()) > 0:
                heard = channel.get_message(timeout=left)
                if heard is not None and bytes(heard["data"]).isdigit():
                    known = int(heard["data"])
        return known >= seq

    def _channel(self) -> PubSub:
        return self._client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call, no-any-return] # theirs


def _sha1(text: str) -> str:
    # The protocol names scripts by SHA-1; nothing is secured by it.
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _tail(answer: Sequence[Any]) -> StreamTail:
    seq, incarnation, digest = answer
    return StreamTail(int(seq), incarnation.decode(), digest.decode()) if seq else EMPTY


def _entries(answer: Any) -> list[StreamEntry]:
    if not answer:
        return []
    entries = (_entry(identity, fields) for identity, fields in answer[0][1])
    return [entry for entry in entries if entry is not None]


def _entry(identity: bytes, fields: dict[bytes, bytes]) -> StreamEntry | None:
    """None for what somebody else put there, or a later version of this product."""
    if tuple(fields) != _FIELDS or fields[b"v"] != _VERSION:
        return None
    _, incarnation, kind, stream, version, name, session, tenant, at, digest = map(
        bytes.decode, fields.values()
    )
    seq = int(identity.partition(b"-")[0])
    return StreamEntry(seq, incarnation, kind, stream, int(version), name, session, tenant, int(at), digest)
