"""gunicorn's threaded worker, but a thread is taken by a whole request only, and none by a connection that ends.

gunicorn (27) reads requests in its threads, so two dozen clients that send a byte now and then take all of them; and
it closes politely in its main loop, where each client that leaves its own end open holds everybody up for two
seconds. Here the loop itself collects the bytes and waits for the end, without ever waiting for one client.
"""

from __future__ import annotations

import errno
import re
import select
import selectors
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.conf import settings
from gunicorn.http import get_parser
from gunicorn.workers.gthread import STOP_KEEPALIVE_LINGER, TConn, ThreadWorker

from config import syscalls
from resilience.stopping import FAMILY, Stage

REQUEST_SECONDS = 10.0
"""From a request's first byte to its last."""
LINGER_SECONDS = 2.0
"""For the other side to close, once it has its last answer: a close with bytes unread would take the answer back."""
REST_SECONDS = 0.02
"""After a turn that refused somebody, so that the next has several to refuse: each turn costs those who are served."""
_HEAD_BYTES = 32_768
_READ_BYTES = 65_536
_EXPIRY_SECONDS = 0.25
# After each read or write the loop waits this long for a busy thread. At Python's 5 ms, two hundred clients who came at
# once kept a liveness probe up to 1.1 s; at 1 ms, half a second.
_SWITCH_SECONDS = 0.001
# A thread waits so long for a client that asks again and again and reads nothing. Not by SO_SNDTIMEO: Python's way to
# send a file would go on waiting.
_UNREAD_SECONDS = 5.0
_CROWDED = 0.9  # of all connections that a process may have
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*0*(\d{1,12})[ \t]*\r\n", re.IGNORECASE)
_ANY_LENGTH = re.compile(rb"\r\ncontent-length\s*:", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)
_EXPECT = re.compile(rb"\r\nexpect:[ \t]*100-continue", re.IGNORECASE)
_REASONS = {
    400: "Bad Request",
    408: "Request Timeout",
    411: "Length Required",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
}


class Refused(Exception):
    """A request that no thread shall see. `status`: the answer's."""

    def __init__(self, status: int) -> None:
        super().__init__(_REASONS[status])
        self.status = status


class Connection(TConn):  # type: ignore[misc]
    """One client. Outside of a thread its socket never blocks, and `timeout` says when the loop has waited enough."""

    def __init__(self, worker: PatientWorker, *whom: Any) -> None:
        super().__init__(worker.cfg, *whom)
        self.worker = worker
        self.received = bytearray()
        self.invited = False  # to send the body
        self.heard: Callable[[Connection], object] = worker.linger
        self.late: Callable[[Connection], None] = worker.linger
        self.parser = get_parser(worker.cfg, self.sock, self.client)
        self.initialized = True

    def close(self, graceful: bool = False) -> None:
        """gunicorn's own end of a connection, in the loop."""
        if graceful:
            self.worker.nr_conns += 1  # gunicorn has counted it out already
            self.worker.linger(self)
        else:
            super().close()

    def whole(self) -> bool:
        """Takes what has come; whether that is a request. Raises Refused, or OSError when the client has gone."""
        ended = False
        with suppress(BlockingIOError):
            part = syscalls.recv(self.sock)
            self.received += part
            ended = not part
        whole = self._is_whole()
        if ended and not whole:
            raise ConnectionAbortedError("half a request, or none")
        return whole

    def _is_whole(self) -> bool:
        end = self.received.find(b"\r\n\r\n")
        if end < 0:
            if len(self.received) > _HEAD_BYTES:
                raise Refused(431)
            return False
        missing = body_length(bytes(self.received[: end + 2])) - (len(self.received) - end - 4)
        if missing > 0 and not self.invited and _EXPECT.search(self.received, 0, end + 2):
            self.invited = True
            self.sock.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        return missing <= 0


def body_length(head: bytes) -> int:
    """Bytes announced to follow `head`. Raises Refused: nobody sends this shop anything large, or of unknown length.

    Nor is a length let through that the parser might read, and wait for in its thread, but this does not. Whatever
    else is malformed is left to the parser, which is strict.
    """
    if _CHUNKED.search(head):
        raise Refused(411)
    announced = _LENGTH.search(head)
    if len(_ANY_LENGTH.findall(head)) > (announced is not None):
        raise Refused(400)
    length = int(announced[1]) if announced else 0
    if length > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
        raise Refused(413)
    return length


class PatientWorker(ThreadWorker):  # type: ignore[misc]
    """For plain HTTP/1: TLS ends at a proxy. Methods run in the main loop, unless they say otherwise."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._waiting: dict[Connection, None] = {}  # the one that has waited longest first
        self._expire_at = 0.0
        self._refused = False  # somebody, in this turn of the loop
        self._coming: set[Connection] = set()  # have been given a thread, and are not yet known to the door

    def accept(self, listener: Any) -> None:
        """gunicorn's hook: somebody connects."""
        try:
            sock, client = listener.accept()
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ECONNABORTED):
                raise
            return
        self.nr_conns += 1
        if self.nr_conns > self.worker_connections * _CROWDED:
            self._make_room()
        connection = Connection(self, sock, client, listener.getsockname())
        # It costs no thread, and browsers connect ahead of what they will ask for.
        patience = self.cfg.keepalive if self.alive else STOP_KEEPALIVE_LINGER
        self._wait(connection, patience, self._begin, late=self._end)

    def enqueue_req(self, conn: Connection) -> None:
        """gunicorn's hook: a kept connection has something to say."""
        conn.sock.setblocking(False)
        self._begin(conn)

    def on_client_socket_readable(self, conn: Connection, client: socket.socket) -> None:
        """gunicorn's hook. Whoever made room in this very turn of the loop may still be among its events."""
        if conn in self.keepalived_conns:
            super().on_client_socket_readable(conn, client)

    def linger(self, connection: Connection) -> None:
        """Says that no more will come, and ends the connection when the other side has heard it."""
        try:
            connection.sock.setblocking(False)
            connection.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._end(connection)
        else:
            self._wait(connection, LINGER_SECONDS, self._swallow, late=self._end)

    def murder_pending(self) -> None:
        """gunicorn's hook, once a turn of the loop: ends what has taken too long."""
        if self._refused and self.alive:  # one that stops has closed the sockets it would wait at
            self._refused = False
            self._rest()
        now = time.monotonic()
        if now >= self._expire_at:
            self._expire_at = now + _EXPIRY_SECONDS
            for connection in [one for one in self._waiting if one.timeout <= now]:
                connection.late(connection)

    def _rest(self) -> None:
        """Until somebody has been served or connects."""
        # All of these were opened before any client: their numbers are small enough for select.
        select.select([self.method_queue, *self.sockets], [], [], REST_SECONDS)

    def _cap_keepalive(self, deadline: float) -> None:
        """gunicorn's hook: the worker stops."""
        super()._cap_keepalive(deadline)
        for connection in self._waiting:
            connection.timeout = min(connection.timeout, deadline)

    def _begin(self, connection: Connection) -> None:
        connection.received = bytearray(connection.parser.unreader.take_buffered())
        connection.invited = False
        if not self._heard(connection):
            self._wait(connection, REQUEST_SECONDS, self._heard, late=lambda one: self._refuse(one, 408))

    def _heard(self, connection: Connection) -> bool:
        """Whether no more needs to be heard."""
        try:
            if not connection.whole():
                return False
        except Refused as refused:
            self._refuse(connection, refused.status)
        except OSError:
            self._end(connection)
        else:
            self._decide(connection)
        return True

    def _decide(self, connection: Connection) -> None:
        """A thread, or an answer from here: what is refused for want of a place must cost the others nothing."""
        request = bytes(connection.received)
        serving = self.alive and FAMILY.now is Stage.SERVING
        answer = self.wsgi.refuse_early(request, len(self._coming)) if serving else None
        if answer is not None:
            self._refused = True
            self._say(connection, answer, self._keep)
            return
        self._forget(connection)
        connection.parser.unreader.unread(request)
        connection.received.clear()
        self._coming.add(connection)
        super().enqueue_req(connection)

    def handle(self, conn: Connection) -> Any:
        """gunicorn's hook, in a thread: one request."""
        try:
            return super().handle(conn)
        finally:
            self._coming.discard(conn)

    def handle_request(self, req: Any, conn: Connection) -> Any:
        """gunicorn's hook, in a thread: it has been understood. The door counts it from here."""
        self._coming.discard(conn)
        conn.sock.settimeout(_UNREAD_SECONDS)
        try:
            return super().handle_request(req, conn)
        except TimeoutError:
            return False

    def _refuse(self, connection: Connection, status: int) -> None:
        text = f"{_REASONS[status]}\n"
        answer = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: text/plain\r\n"
            f"Content-Length: {len(text)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{text}"
        )
        self._say(connection, answer.encode(), self.linger)

    def _say(self, connection: Connection, answer: bytes, then: Callable[[Connection], None]) -> None:
        try:
            whole = syscalls.send(connection.sock, answer) == len(answer)
        except OSError:
            whole = False
        (then if whole else self._end)(connection)

    def _keep(self, connection: Connection) -> None:
        self._wait(connection, self.cfg.keepalive, self._begin, late=self._end)

    def _swallow(self, connection: Connection) -> None:
        try:
            ended = not connection.sock.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            ended = True
        if ended:
            self._end(connection)

    def _make_room(self) -> None:
        """Whoever has been idle longest goes: a crowd of open connections shall keep nobody out."""
        if self.keepalived_conns:
            self.keepalived_conns[0].timeout = 0.0
            self.murder_keepalived()
        elif self._waiting:
            self._end(next(iter(self._waiting)))

    def _wait(
        self,
        connection: Connection,
        seconds: float,
        heard: Callable[[Connection], object],
        late: Callable[[Connection], None],
    ) -> None:
        """Until it has something to say, at most `seconds`; a wait that it was in is over."""
        if connection in self._waiting:
            del self._waiting[connection]  # to stand at the end again
        else:
            self.poller.register(connection.sock, selectors.EVENT_READ, lambda _: self._readable(connection))
        connection.timeout = time.monotonic() + seconds
        connection.heard, connection.late = heard, late
        self._waiting[connection] = None

    def _readable(self, connection: Connection) -> None:
        if connection in self._waiting:  # it may have made room for another in this very turn of the loop
            connection.heard(connection)

    def _forget(self, connection: Connection) -> None:
        if connection in self._waiting:
            del self._waiting[connection]
            self.poller.unregister(connection.sock)

    def _end(self, connection: Connection) -> None:
        self._forget(connection)
        self.nr_conns -= 1
        connection.close()
