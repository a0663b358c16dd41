"""A small threaded HTTP/1.1 server that gives its handler the socket.

The sandbox needs to break connections at exact points (reset, silence, a byte at a time), which servers of
the standard library hide. One thread per connection, their number bounded: more clients wait in the
listening queue, as with any overloaded server.
"""

import contextlib
import json
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

_MAX_CONNECTIONS = 400
_MAX_HEAD = 64 * 1024
_MAX_BODY = 1024 * 1024
_IDLE_SECONDS = 75.0
_SEND_SECONDS = 30.0
_DEADLINE_HEADER = "x-envoy-expected-rq-timeout-ms"
BODILESS = frozenset({204, 304})
_REASONS = {
    200: "OK",
    201: "Created",
    204: "No Content",
    303: "See Other",
    304: "Not Modified",
    400: "Bad Request",
    401: "Unauthorized",
    402: "Payment Required",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    411: "Length Required",
    413: "Content Too Large",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


@dataclass(frozen=True)
class Request:
    """One request, read to its end. Header names are lower case; of a repeated header the last one counts."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    arrived: float = field(default_factory=time.monotonic)

    @property
    def path(self) -> str:
        """The path as sent, still percent-encoded."""
        return self.target.partition("?")[0]

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.target.partition("?")[2], keep_blank_values=True))

    @property
    def deadline(self) -> float | None:
        """Until when (monotonic clock) the caller will wait; None without or with a senseless word."""
        text = self.headers.get(_DEADLINE_HEADER, "")
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            return None
        return self.arrived + int(text) / 1000

    def json(self) -> Any:
        """The body as JSON. Raises ValueError."""
        return json.loads(self.body)

    def segments(self) -> list[str]:
        return [unquote(part) for part in self.path.split("/") if part]


@dataclass(frozen=True)
class Response:
    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, value: object, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> "Response":
        """`value` as a JSON answer."""
        return cls(
            status,
            json.dumps(value, ensure_ascii=False).encode(),
            (("Content-Type", "application/json"), *headers),
        )

    @classmethod
    def html(cls, text: str, status: int = 200) -> "Response":
        return cls(status, text.encode(), (("Content-Type", "text/html; charset=utf-8"),))

    def head(self, keep_alive: bool, length: int | None = None) -> bytes:
        """Status line and headers; `length` is what Content-Length says, by default the true one."""
        lines = [f"HTTP/1.1 {self.status} {_REASONS.get(self.status, 'Status')}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        if self.status not in BODILESS:
            lines.append(f"Content-Length: {len(self.body) if length is None else length}")
        lines.append("Connection: " + ("keep-alive" if keep_alive else "close"))
        return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8")


class BadRequest(Exception):
    """The bytes are no request we can read; `status` is what to answer."""

    def __init__(self, status: int) -> None:
        super().__init__(_REASONS[status])
        self.status = status


class Connection:
    """One client's connection, used by its own thread only (but for `abort`)."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.idle = True
        self.closes_at: float | None = None
        self._buffer = b""

    def read_request(self) -> Request | None:
        """The next request, or None when the client has left or been silent too long. Raises BadRequest."""
        while b"\r\n\r\n" not in self._buffer:
            if len(self._buffer) > _MAX_HEAD:
                raise BadRequest(431)
            if not self._more(self._patience()):
                return None
        self.idle = False
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        method, target, headers = _parse_head(head)
        if "transfer-encoding" in headers:
            raise BadRequest(411)
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            raise BadRequest(400)
        if int(length[:12]) > _MAX_BODY:
            raise BadRequest(413)
        while len(self._buffer) < int(length):
            if not self._more(_IDLE_SECONDS):
                return None
        body, self._buffer = self._buffer[: int(length)], self._buffer[int(length) :]
        return Request(method, target, headers, body)

    def _patience(self) -> float:
        if self.closes_at is None:
            return _IDLE_SECONDS
        return max(0.001, self.closes_at - time.monotonic())

    def _more(self, seconds: float) -> bool:
        self.sock.settimeout(seconds)
        try:
            data = self.sock.recv(65536)
        except OSError:
            return False
        self.closes_at = None
        self._buffer += data
        return bool(data)

    def send(self, data: bytes) -> bool:
        """All of `data`; False when the client has left or does not take it."""
        self.sock.settimeout(_SEND_SECONDS)
        try:
            self.sock.sendall(data)
        except OSError:
            return False
        return True

    def wait_for_leave(self, seconds: float | None, wake: socket.socket) -> bool:
        """Wait until `seconds` are over (True: still here), the client leaves or `wake` turns readable."""
        poll = select.poll()
        poll.register(self.sock, select.POLLRDHUP)
        poll.register(wake, select.POLLIN)
        return not poll.poll(None if seconds is None else seconds * 1000)

    def reset(self) -> None:
        """Make the close that follows an RST: what was not read or sent yet is thrown away."""
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def abort(self) -> None:
        """`reset` from another thread: wakes the connection's own thread, which then closes."""
        self.reset()
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.close()


def _parse_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    lines = head.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[1].startswith("/") or parts[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise BadRequest(400)
    headers = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon:
            raise BadRequest(400)
        headers[name.lower()] = value.strip()
    if parts[2] == "HTTP/1.0":
        headers.setdefault("connection", "close")
    return parts[0], parts[1], headers


Handler = Callable[[Request, Connection], bool]
"""Answers on the connection; True when the connection may serve another request."""


class Server:
    """One listening socket. Thread-safe.

    `refuse(True)` stops listening (new connections are refused, idle ones closed) and keeps the port;
    `refuse(False)` listens again.
    """

    def __init__(self, handler: Handler, host: str, port: int) -> None:
        self._handler = handler
        self._places = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        self._listening = threading.Event()
        self._stopped = False
        self.accepted = 0
        self._socket = _listener(host, port)
        self.port = int(self._socket.getsockname()[1])
        self.url = f"http://{host}:{self.port}"
        self._listening.set()
        threading.Thread(target=self._accept, name="sandbox-accept", daemon=True).start()

    @property
    def open_connections(self) -> int:
        with self._lock:
            return len(self._connections)

    def refuse(self, wanted: bool) -> None:
        with self._lock:
            if self._stopped or wanted != self._listening.is_set():
                return
            if wanted:
                self._listening.clear()
                # Linux: a listening socket that is shut down goes back to "bound"; the port stays ours.
                self._socket.shutdown(socket.SHUT_RD)
                idle = [connection for connection in self._connections if connection.idle]
            else:
                self._socket.listen(128)
                self._listening.set()
                idle = []
        for connection in idle:
            connection.abort()

    def stop(self) -> None:
        """Stop listening and reset every connection; returns at once."""
        self.refuse(True)
        with self._lock:
            self._stopped = True
            self._listening.set()
            remaining = list(self._connections)
            self._socket.close()
        for connection in remaining:
            connection.abort()

    def _accept(self) -> None:
        while True:
            self._listening.wait()
            if self._stopped:
                return
            self._places.acquire()
            try:
                sock, _ = self._socket.accept()
            except OSError:  # shut down by refuse() or stop()
                self._places.release()
                continue
            self._open(Connection(sock))

    def _open(self, connection: Connection) -> None:
        with self._lock:
            self.accepted += 1
            self._connections.add(connection)
        threading.Thread(
            target=self._serve, args=(connection,), name="sandbox-connection", daemon=True
        ).start()

    def _serve(self, connection: Connection) -> None:
        try:
            while self._one(connection):
                pass
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()
            self._places.release()

    def _one(self, connection: Connection) -> bool:
        with self._lock:  # so that refuse() finds us either idle or not yet here
            if not self._listening.is_set() or self._stopped:
                return False
            connection.idle = True
        try:
            request = connection.read_request()
        except BadRequest as problem:
            connection.send(Response(problem.status).head(keep_alive=False))
            return False
        if request is None:
            return False
        keep = self._handler(request, connection)
        return keep and request.headers.get("connection") != "close"


def _listener(host: str, port: int) -> socket.socket:
    """Bound by number, also when any port will do: only then does the kernel keep it while we refuse."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        chosen = probe.getsockname()[1]
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, chosen))
    listener.listen(128)
    return listener
