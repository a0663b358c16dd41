"""Name resolution with a bound, which the operating system's resolver does not offer."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable
from typing import Any

AddressInfo = tuple[Any, ...]
Lookup = Callable[..., list[AddressInfo]]


class Resolver:
    """Looks names up in helper threads and waits for them no longer than asked.

    This is the thread bulkhead for the one call that cannot be given a timeout: at most `most_threads`
    lookups run at a time, and when all of them hang the next is refused at once, so threads do not pile
    up. Literal addresses take no thread. Thread-safe.
    """

    def __init__(self, *, most_threads: int = 4, lookup: Lookup = socket.getaddrinfo) -> None:
        self._places = threading.Semaphore(most_threads)
        self._lookup = lookup

    def addresses(self, host: str, port: int, seconds: float) -> list[AddressInfo]:
        """All stream addresses of `host`. Raises TimeoutError after `seconds`, OSError when it has none."""
        literal = _literal(host, port)
        if literal is not None:
            return literal
        if not self._places.acquire(blocking=False):
            raise TimeoutError("every name lookup allowed at a time is hanging")
        answers: queue.SimpleQueue[list[AddressInfo] | OSError] = queue.SimpleQueue()
        threading.Thread(
            target=self._look_up, args=(host, port, answers), name="resilience-resolver", daemon=True
        ).start()
        try:
            answer = answers.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError("the name lookup took too long") from None
        if isinstance(answer, OSError):
            raise answer
        return answer

    def _look_up(self, host: str, port: int, answers: queue.SimpleQueue[list[AddressInfo] | OSError]) -> None:
        try:
            answers.put(self._lookup(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            answers.put(error)
        except UnicodeError:
            answers.put(socket.gaierror("not a host name"))
        finally:
            self._places.release()


def _literal(host: str, port: int) -> list[AddressInfo] | None:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return None
