"""Sockets that know when the whole call has to be over.

A read timeout bounds the gap between two bytes, so a neighbour that sends one byte now and then holds a
thread for as long as it likes. These sockets set their timeout anew before every operation, to what is
left of the call. The bounds travel in a context variable, so a kept-alive socket obeys whichever call
uses it.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

Address = tuple[Any, ...]


class Bounds:
    """The limits of one call, and how far it has come.

    `now`: the clock's reading function; the two ends are its readings; `read_gap`: seconds between two bytes.
    `phase`: "pool", "dns", "connect", "tls", then "send", "headers", "body".
    """

    __slots__ = ("connect_end", "connect_timeout", "end", "now", "phase", "pool_wait", "read_gap")

    def __init__(
        self,
        now: Callable[[], float],
        end: float,
        *,
        connect_timeout: float,
        read_gap: float,
        pool_wait: float,
    ) -> None:
        self.now = now
        self.end = end
        self.connect_timeout = connect_timeout
        self.connect_end = end
        self.read_gap = read_gap
        self.pool_wait = pool_wait
        self.phase = "pool"

    def left(self) -> float:
        """Seconds until the call must be over. Raises TimeoutError when it must be by now."""
        left = self.end - self.now()
        if left <= 0:
            raise TimeoutError("the time for this call is over")
        return left

    def begin_connecting(self) -> None:
        """Name resolution, connection and TLS together get the connect timeout, counted from here."""
        self.connect_end = min(self.end, self.now() + self.connect_timeout)

    def left_to_connect(self) -> float:
        """Seconds left for connecting. Raises TimeoutError when there are none."""
        left = self.connect_end - self.now()
        if left <= 0:
            raise TimeoutError("the time to connect is over")
        return left


current_bounds: ContextVar[Bounds] = ContextVar("resilience_bounds")


def _before_send(sock: socket.socket) -> None:
    bounds = current_bounds.get()
    sock.settimeout(bounds.left())
    bounds.phase = "send"  # from here on, something may have left


def _before_read(sock: socket.socket) -> None:
    bounds = current_bounds.get()
    left = bounds.left()
    if bounds.phase == "send":
        bounds.phase = "headers"
    sock.settimeout(left if left < bounds.read_gap else bounds.read_gap)


class DeadlineSocket(socket.socket):
    """A plain socket under the current bounds.

    The C-level `sendall` counts its timeout for all of the data.
    """

    def sendall(self, data: Any, flags: int = 0) -> None:
        _before_send(self)
        super().sendall(data, flags)

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        _before_read(self)
        return super().recv_into(buffer, nbytes, flags)


class DeadlineSSLSocket(ssl.SSLSocket):
    """A TLS socket under the current bounds, the handshake included.

    (`sendall` and `recv_into` end up here.)
    """

    def do_handshake(self, block: bool = False) -> None:
        bounds = current_bounds.get()
        bounds.phase = "tls"
        self.settimeout(bounds.left_to_connect())
        super().do_handshake(block)

    def send(self, data: Any, flags: int = 0) -> int:
        _before_send(self)
        return super().send(data, flags)

    def read(self, len: int = 1024, buffer: Any = None) -> Any:
        _before_read(self)
        return super().read(len, buffer)


_MOST_ADDRESSES = 8


def open_connection(
    addresses: list[tuple[Any, ...]], bounds: Bounds, options: list[tuple[int, int, int]]
) -> DeadlineSocket:
    """Connect to the first address that answers; all of them share the time to connect.

    Each try gets an equal part of what is left, so that dead addresses cannot use up the time of a live one.
    Raises OSError with the last failure.
    """
    bounds.phase = "connect"
    addresses = addresses[:_MOST_ADDRESSES]
    failure: OSError = OSError("the name has no address")
    for tried, (family, kind, protocol, _, address) in enumerate(addresses):
        share = bounds.left_to_connect() / (len(addresses) - tried)
        sock = DeadlineSocket(family, kind, protocol)
        try:
            for option in options:
                sock.setsockopt(*option)
            sock.settimeout(share)
            sock.connect(address)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure


def tls_context(ca_bundle: str | None) -> ssl.SSLContext:
    """A context that verifies certificates and names, made once per session: loading the bundle takes
    10 ms.
    """
    context = ssl.create_default_context(cafile=ca_bundle)
    context.sslsocket_class = DeadlineSSLSocket
    return context
