"""`http.fetch` against a server of the test's own: what it gives, and where it refuses to go."""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.sandbox.conftest import require_sandbox
from tests.integration.sandbox.pool import Pool
from workers.supervisor.port import Failed

pytestmark = pytest.mark.timeout(60)


class Server(http.server.ThreadingHTTPServer):
    """Records the requests it gets; /slow never ends until it is told to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.seen: list[tuple[str, str, str | None]] = []
        self.may_end = threading.Event()

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class Answer(http.server.BaseHTTPRequestHandler):
    """The server's answers by path."""

    server: Server

    def do_GET(self) -> None:
        self.server.seen.append((self.command, self.path, self.headers["host"]))
        if self.path == "/redirect":
            self._send(302, b"", {"Location": "http://169.254.169.254/"})
        elif self.path == "/slow":
            self._send(200, b"", {"Content-Length": "10"})
            self.server.may_end.wait(30)
        elif self.path == "/large":
            self._send(200, b"x" * 3_000_000)
        elif self.path == "/bytes":
            self._send(200, b"\xff\x00", {"Content-Encoding": "gzip"})
        else:
            self._send(404 if self.path == "/missing" else 200, "häuser".encode(), {"X-Long": "y" * 5000})

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        return

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        yield running
        running.may_end.set()
        running.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def fetching(reachable_folder: Path, server: Server, closed_port: int) -> Iterator[Pool]:
    """A pool that lists the test's server with its private address, and others without one."""
    entries: list[tuple[str, int, list[str]]] = [
        ("localhost", server.port, ["127.0.0.1", "::1"]),
        ("localhost", closed_port, ["127.0.0.0/8", "::1"]),
        ("localhost", server.port + 1 if server.port < 65535 else 1, []),
        ("no-such-name.invalid", 80, []),
    ]
    running = Pool(reachable_folder, egress=entries)
    require_sandbox(running)
    yield running
    running.close()


@pytest.fixture(scope="module")
def closed_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return int(unused.getsockname()[1])


def fetch_failed(pool: Pool, url: str, **arguments: object) -> Failed:
    outcome = pool.execute("http.fetch", {"url": url, **arguments})
    assert isinstance(outcome, Failed), outcome
    return outcome


def test_gives_status_headers_and_body(fetching: Pool, server: Server) -> None:
    url = f"http://localhost:{server.port}/page?q=1"
    completed = fetching.completed("http.fetch", {"url": url})
    output = completed.output
    assert (output["status"], output["body"]) == (200, {"encoding": "utf-8", "text": "häuser"})
    assert (output["size_bytes"], output["truncated"], output["address"]) == (7, False, "127.0.0.1")
    long = next(header for header in output["headers"] if header["name"] == "x-long")
    assert len(long["value"]) == 1024
    assert server.seen[-1] == ("GET", "/page?q=1", f"localhost:{server.port}")
    assert completed.sandbox.strength == "none"


def test_a_status_is_an_answer_and_a_redirect_is_not_followed(fetching: Pool, server: Server) -> None:
    url = f"http://localhost:{server.port}"
    assert fetching.completed("http.fetch", {"url": f"{url}/missing"}).output["status"] == 404
    output = fetching.completed("http.fetch", {"url": f"{url}/redirect"}).output
    assert output["status"] == 302
    location = next(header for header in output["headers"] if header["name"] == "location")
    assert location["value"] == "http://169.254.169.254/"
    assert server.seen[-1][1] == "/redirect"


def test_head_gives_no_body(fetching: Pool, server: Server) -> None:
    arguments = {"url": f"http://LOCALHOST.:{server.port}/", "method": "HEAD"}
    output = fetching.completed("http.fetch", arguments).output
    assert (output["status"], output["size_bytes"], server.seen[-1][0]) == (200, 0, "HEAD")


def test_a_large_body_is_cut_and_bytes_stay_as_sent(fetching: Pool, server: Server) -> None:
    url = f"http://localhost:{server.port}"
    large = fetching.completed("http.fetch", {"url": f"{url}/large", "limit_bytes": 1000})
    assert (large.output["size_bytes"], large.output["truncated"], large.truncated) == (1000, True, ("body",))
    sent = fetching.completed("http.fetch", {"url": f"{url}/bytes"}).output
    assert sent["body"] == {"encoding": "base64", "bytes": "/wA="}


def test_a_response_that_never_ends_meets_the_wall_limit(fetching: Pool, server: Server) -> None:
    url = f"http://localhost:{server.port}/slow"
    began_at = time.monotonic()
    outcome = fetching.execute("http.fetch", {"url": url}, wall_limit_ms=500)
    assert isinstance(outcome, Failed)
    assert (outcome.code, outcome.began) in {("WALL_LIMIT", True), ("UPSTREAM_ERROR", True)}
    assert time.monotonic() - began_at < 5


def test_a_refused_connection_sent_nothing(fetching: Pool, closed_port: int) -> None:
    failed = fetch_failed(fetching, f"http://localhost:{closed_port}/")
    assert (failed.code, failed.began) == ("UPSTREAM_UNREACHABLE", False)
    failed = fetch_failed(fetching, "http://no-such-name.invalid/")
    assert (failed.code, failed.began) == ("UPSTREAM_UNREACHABLE", False)


def test_a_name_that_resolves_to_a_private_address_needs_an_entry_of_its_own(
    fetching: Pool, server: Server
) -> None:
    failed = fetch_failed(fetching, f"http://localhost:{server.port + 1}/")
    assert (failed.code, failed.began) == ("ADDRESS_NOT_PUBLIC", False)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/",
        "http://2130706433:{port}/",
        "http://0x7f.1:{port}/",
        "http://0177.0.0.1:{port}/",
        "http://[::1]:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://localhost:1/",
        "http://evil.test/",
        "http://localhost@evil.test:{port}/",
        "http://evil.test#@localhost:{port}/",
        "http://evil.test\\@localhost:{port}/",
        "http://evil.test%00.localhost:{port}/",
        "http://evil.test\0.localhost:{port}/",
        "http://localhost:{port}\r\nX: y/",
        "https://localhost:99999/",
        "file:///etc/passwd",
        "http://löcalhost:{port}/",
    ],
)
def test_refuses_every_other_form_before_it_resolves_anything(
    fetching: Pool, server: Server, url: str
) -> None:
    before = len(server.seen)
    failed = fetch_failed(fetching, url.replace("{port}", str(server.port)))
    assert (failed.code, failed.began) == ("HOST_NOT_ALLOWED", False)
    assert len(server.seen) == before
