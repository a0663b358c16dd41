"""For tests of code that uses the library: a clock that stands still, and neighbours that follow a script."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping


class ManualClock:
    """A clock that moves only when told to. Thread-safe."""

    def __init__(self, start: float = 1000.0) -> None:
        self._lock = threading.Lock()
        self._now = start
        self.slept: list[float] = []

    def monotonic(self) -> float:
        """The clock's seconds."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Moves the clock instead of waiting, and remembers it in `slept`."""
        with self._lock:
            self._now += seconds
            self.slept.append(seconds)

    def advance(self, seconds: float) -> None:
        """Let `seconds` (≥ 0) pass."""
        if seconds < 0:
            raise ValueError(f"a monotonic clock cannot go back, got {seconds}")
        with self._lock:
            self._now += seconds


def answer(
    status: int = 200,
    body: bytes = b"{}",
    *,
    headers: Mapping[str, str] | None = None,
    length: int | None = None,
) -> bytes:
    """The bytes of an HTTP/1.1 answer. `length`: what Content-Length shall claim, if not the truth."""
    lines = [f"HTTP/1.1 {status} Scripted", "Content-Type: application/json"]
    lines.append(f"Content-Length: {len(body) if length is None else length}")
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Connection:
    """One accepted connection, as the script sees it.

    Every wait ends when the other side closes or the test does.
    """

    def __init__(self, sock: socket.socket, neighbour: ScriptedNeighbour) -> None:
        self.sock = sock
        self._neighbour = neighbour
        self._buffer = b""

    def read_request(self) -> bytes | None:
        """Head and body of the next request, also kept in `neighbour.requests`; None when there is no
        more.
        """
        while b"\r\n\r\n" not in self._buffer:
            if not self._receive():
                return None
        head, _, rest = self._buffer.partition(b"\r\n\r\n")
        size = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        wanted = int(size[1]) if size else 0
        while len(rest) < wanted:
            self._buffer = b""
            if not self._receive():
                return None
            rest += self._buffer
        self._buffer = rest[wanted:]
        request = head + b"\r\n\r\n" + rest[:wanted]
        self._neighbour.requests.append(request)
        return request

    def send(self, data: bytes) -> bool:
        """Send; False when the other side does not take it any more."""
        try:
            self.sock.sendall(data)
        except OSError:
            return False
        return True

    def trickle(self, data: bytes, every: float) -> None:
        """One byte every so many seconds."""
        for place in range(len(data)):
            if not self.send(data[place : place + 1]) or self.wait(every):
                return

    def hang(self) -> None:
        """Do nothing until the other side closes."""
        while self._receive():
            pass

    def wait(self, seconds: float) -> bool:
        """Do nothing for `seconds`; True, and sooner, when the test is over."""
        return self._neighbour.stopping.wait(seconds)

    def reset(self) -> None:
        """Close with a reset instead of an end."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def _receive(self) -> bool:
        try:
            data = self.sock.recv(65536)
        except OSError:
            return False
        self._buffer += data
        return bool(data)


Script = Callable[[Connection], None]


class ScriptedNeighbour:
    """A server on 127.0.0.1 that does to every connection what `script` says, for tests on real sockets.

    A context manager. `requests` holds what arrived, `accepted` counts connections. `script` may be replaced
    between calls. With `tls` (a server-side SSLContext) connections are wrapped before the script sees them.
    """

    def __init__(self, script: Script, *, tls: ssl.SSLContext | None = None) -> None:
        self.script = script
        self.requests: list[bytes] = []
        self.accepted = 0
        self.stopping = threading.Event()
        self._tls = tls
        self._change = threading.Condition()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]

    @classmethod
    def answering(
        cls,
        status: int = 200,
        body: bytes = b"{}",
        *,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> ScriptedNeighbour:
        """One that gives the same answer to every request, keeping connections open."""
        data = answer(status, body, headers=headers)

        def script(connection: Connection) -> None:
            while connection.read_request() is not None and connection.send(data):
                pass

        return cls(script, tls=tls)

    @property
    def url(self) -> str:
        """Scheme, host and port."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> ScriptedNeighbour:
        threading.Thread(target=self._accept, name="scripted-neighbour", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._listener.shutdown(socket.SHUT_RDWR)  # closing alone would not wake the accepting thread
        self._listener.close()
        with self._change:
            for sock in self._open:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
        self.wait_until_closed()

    def wait_until_closed(self, seconds: float = 5.0) -> bool:
        """Wait until no connection is open any more; False when that takes longer than `seconds`."""
        with self._change:
            return self._change.wait_for(lambda: not self._open, timeout=seconds)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self._change:
                self._open.add(sock)
                self.accepted += 1
            threading.Thread(target=self._serve, args=(sock,), name="scripted-neighbour", daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        used = sock
        try:
            if self._tls is not None:
                used = self._tls.wrap_socket(sock, server_side=True)
            self.script(Connection(used, self))
        except OSError:
            pass  # the other side went away
        finally:
            used.close()
            with self._change:
                self._open.discard(sock)
                self._change.notify_all()
