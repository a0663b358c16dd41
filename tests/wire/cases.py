"""The ways in which a neighbour can hold a caller: one script for each, shared by the tests and the benchmark."""

from __future__ import annotations

import contextlib
import gzip
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resilience.errors import BadAnswer, ConnectFailed, OutcomeUnknown, ResilienceError, ServerError
from resilience.http import HttpPolicy, HttpSession
from resilience.resolver import Resolver
from resilience.testing import Connection, ScriptedNeighbour, answer

HERE = Path(__file__).parent
CA = str(HERE / "ca.pem")
CAP = 0.3
CONNECT = 0.15


def server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(HERE / "neighbour.pem")
    return context


def policy(url: str, **changes: Any) -> HttpPolicy:
    numbers: dict[str, Any] = {
        "connect_timeout": CONNECT,
        "read_timeout": 1.0,  # larger than the cap: only the cap may end the calls below
        "call_timeout": CAP,
        "pool_wait": 0.05,
        "pool_size": 4,
        "headers": {"Authorization": "Bearer sk_very_secret"},
        "ca_bundle": CA if url.startswith("https") else None,
    }
    return HttpPolicy(url, **{**numbers, **changes})


# Scripts


def hang(connection: Connection) -> None:
    connection.read_request()
    connection.hang()


def trickle_headers(connection: Connection) -> None:
    connection.read_request()
    connection.trickle(answer(headers={"X-Long": "x" * 1000}), every=0.02)
    connection.hang()


def trickle_body(connection: Connection) -> None:
    connection.read_request()
    connection.send(answer(body=b"", length=1000))
    connection.trickle(b" " * 1000, every=0.02)
    connection.hang()


def flood_of_100_continue(connection: Connection) -> None:
    connection.read_request()
    while connection.send(b"HTTP/1.1 100 Continue\r\n\r\n"):
        if connection.wait(0.01):
            return


def endless_chunks(connection: Connection) -> None:
    connection.read_request()
    connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while connection.send(b"1\r\n \r\n"):
        if connection.wait(0.01):
            return


def endless_fast_body(connection: Connection) -> None:
    connection.read_request()
    connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while connection.send(b"10000\r\n" + b" " * 65536 + b"\r\n"):
        pass


def redirect_loop(connection: Connection) -> None:
    while connection.read_request() is not None and connection.send(
        answer(302, headers={"Location": "/v1/again"})
    ):
        pass


def gzip_bomb(connection: Connection) -> None:
    connection.read_request()
    connection.send(answer(body=BOMB, headers={"Content-Encoding": "gzip"}))
    connection.hang()


BOMB = gzip.compress(b"\0" * 100_000_000, compresslevel=9)


def never_read(connection: Connection) -> None:
    connection.wait(5.0)


def tls_handshake_trickle(connection: Connection) -> None:
    """Answers the client's hello with the beginning of a record that promises more."""
    connection.sock.recv(65536)
    connection.trickle(b"\x16\x03\x03\x40\x00" + b"\x02" * 1000, every=0.02)
    connection.hang()


# Places that cannot be reached


@contextmanager
def black_hole() -> Iterator[int]:
    """A port on 127.0.0.1 whose queue is full, so that the kernel drops every further connection attempt."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    with contextlib.ExitStack() as held:
        held.callback(listener.close)
        for _ in range(4):
            filler = held.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def refused_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


def addresses(*ports: int) -> Callable[..., list[tuple[Any, ...]]]:
    """A lookup that finds 127.0.0.1 with each of these ports."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]
    return lambda *args, **kwargs: found


class StuckLookup:
    """A resolver that takes five seconds, or until let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def __call__(self, *args: Any, **kwargs: Any) -> list[tuple[Any, ...]]:
        self.let_go.wait(5)
        return []


# The table


@dataclass(frozen=True)
class Case:
    """What happens, and what the caller must learn. `phase`: for outcomes that are unknown."""

    name: str
    script: Callable[[Connection], None]
    expected: type[ResilienceError]
    phase: str | None = None
    tls: bool = False
    wraps: bool = True  # TLS cases only: the neighbour completes the handshake before its script
    request: dict[str, Any] = field(default_factory=dict)


CASES = [
    Case("silence after the request", hang, OutcomeUnknown, "headers"),
    Case("header trickle", trickle_headers, OutcomeUnknown, "headers"),
    Case("body trickle", trickle_body, BadAnswer, "body"),
    Case("100-continue flood", flood_of_100_continue, OutcomeUnknown, "headers"),
    Case("chunked without end", endless_chunks, BadAnswer, "body"),
    Case("fast body without end", endless_fast_body, BadAnswer, "body"),
    Case("request body stall", never_read, OutcomeUnknown, "send", request={"json": "x" * 16_000_000}),
    Case("redirect loop", redirect_loop, ServerError),
    Case("gzip bomb", gzip_bomb, BadAnswer, "body"),
    Case("TLS handshake hang", Connection.hang, ConnectFailed, tls=True, wraps=False),
    Case("TLS handshake trickle", tls_handshake_trickle, ConnectFailed, tls=True, wraps=False),
    Case("TLS, silence after the request", hang, OutcomeUnknown, "headers", tls=True),
    Case("TLS, header trickle", trickle_headers, OutcomeUnknown, "headers", tls=True),
    Case("TLS, body trickle", trickle_body, BadAnswer, "body", tls=True),
    Case(
        "TLS, request body stall",
        never_read,
        OutcomeUnknown,
        "send",
        tls=True,
        request={"json": "x" * 16_000_000},
    ),
]


def neighbour_for(case: Case) -> ScriptedNeighbour:
    return ScriptedNeighbour(case.script, tls=server_tls() if case.tls and case.wraps else None)


def url_for(case: Case, neighbour: ScriptedNeighbour) -> str:
    return f"{'https' if case.tls else 'http'}://127.0.0.1:{neighbour.port}/v1"


@contextmanager
def unreachable(name: str) -> Iterator[HttpSession]:
    """Sessions whose neighbour cannot be reached: "refused", "black hole", "stuck resolver"."""
    if name == "refused":
        yield HttpSession(policy(f"http://127.0.0.1:{refused_port()}"))
    elif name == "black hole":
        with black_hole() as port:
            yield HttpSession(policy(f"http://127.0.0.1:{port}"))
    else:
        lookup = StuckLookup()
        try:
            yield HttpSession(policy("http://gateway.example"), resolver=Resolver(lookup=lookup))
        finally:
            lookup.let_go.set()
