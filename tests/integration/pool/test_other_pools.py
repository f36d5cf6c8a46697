"""The pools of files and of the network: the same process around other tools."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.integration.pool.system import PoolSystem
from tests.support.permitted import body_of, phase_of


class Hello(BaseHTTPRequestHandler):
    """Answers every GET."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        return None


@pytest.fixture
def port() -> Iterator[int]:
    """A server on this host."""
    server = HTTPServer(("127.0.0.1", 0), Hello)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def receipt_of(system: PoolSystem, identifier: str) -> dict[str, object]:
    receipt: dict[str, object] = body_of(system.ledger, identifier, "ToolExecutionCompleted")["sealed"][
        "receipt"
    ]
    return receipt


def test_files_are_written_and_read_in_the_sessions_workspace(sandboxed: PoolSystem) -> None:
    sandboxed.start_pool("fs")
    written = sandboxed.ask("fs.write", {"path": "a.txt", "content": "x"}, stage="write")
    sandboxed.publish("fs", written)
    assert sandboxed.outcome(written) == "done"
    assert (sandboxed.directory.workspaces / "s" / "a.txt").read_text() == "x"
    read = sandboxed.ask("fs.read", {"path": "a.txt"}, stage="read")
    sandboxed.publish("fs", read)
    assert sandboxed.outcome(read) == "done"
    assert receipt_of(sandboxed, read)["exit_code"] == 0


def test_a_listed_host_is_fetched_and_another_is_not(sandboxed: PoolSystem, port: int) -> None:
    sandboxed.start_pool("network", INTERLOCK_EGRESS=f"localhost:{port}@127.0.0.0/8+::1")
    listed = sandboxed.ask("http.fetch", {"url": f"http://localhost:{port}/", "method": "GET"}, stage="a")
    other = sandboxed.ask("http.fetch", {"url": "http://example.invalid/", "method": "GET"}, stage="b")
    sandboxed.publish("network", listed)
    sandboxed.publish("network", other)
    assert sandboxed.outcome(listed) == "done"
    assert receipt_of(sandboxed, listed)["metrics"] == {"status": 200}
    assert sandboxed.outcome(other) == "done"
    failure = body_of(sandboxed.ledger, other, "ToolExecutionFailed")["failure"]
    assert (failure["code"], failure["began"]) == ("HOST_NOT_ALLOWED", False)


def test_a_hint_on_the_wrong_pools_queue_is_left_alone(system: PoolSystem) -> None:
    system.start_pool("pure")
    wrong = system.ask("shell.run", {"argv": ["true"]}, stage="wrong")
    right = system.ask("echo", {"value": 1}, stage="right")
    system.publish("pure", wrong)
    system.publish("pure", right)
    assert system.outcome(right) == "done"
    assert phase_of(system.ledger, wrong) == "queued"
