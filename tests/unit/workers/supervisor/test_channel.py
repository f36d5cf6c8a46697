"""The line between pool and supervisor."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from workers.supervisor.channel import Channel, LineClosedError


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield Channel(one), other


def test_frames_arrive_whole_and_in_order(ends: tuple[Channel, socket.socket]) -> None:
    channel, other = ends
    far = Channel(other)
    sent = [{"text": "ä" * size} for size in (0, 1, 70_000, 1_000_000)]

    def send_all() -> None:
        for fields in sent:
            channel.send("x", **fields)

    thread = threading.Thread(target=send_all)
    thread.start()
    assert [far.receive() for _ in sent] == [{"frame": "x", **fields} for fields in sent]
    thread.join()


def test_nothing_within_the_time_is_none(ends: tuple[Channel, socket.socket]) -> None:
    channel, other = ends
    assert channel.receive(timeout_ms=0) is None
    other.send(b"\0\0")
    assert channel.receive(timeout_ms=0) is None


def test_the_other_s_death_is_told_after_its_last_whole_frame(ends: tuple[Channel, socket.socket]) -> None:
    channel, other = ends
    Channel(other).send("last")
    other.send(b"\0\0\0\5ab")
    other.close()
    assert channel.receive() == {"frame": "last"}
    with pytest.raises(LineClosedError):
        channel.receive()
    with pytest.raises(LineClosedError):
        channel.send("x")


def test_a_frame_of_absurd_size_ends_the_line(ends: tuple[Channel, socket.socket]) -> None:
    channel, other = ends
    other.send(b"\xff\xff\xff\xff")
    with pytest.raises(LineClosedError):
        channel.receive()
