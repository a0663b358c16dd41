"""A question that may hang is asked by one thread at a time; everybody who wants to know shares its answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Runs `question` in a thread of its own, never twice at a time. Thread-safe.

    An answer is good for `fresh_seconds`. A hundred probes of a hung database cost one thread and one connection.
    """

    def __init__(self, question: Callable[[], T], fresh_seconds: float = 1.0) -> None:
        self._question = question
        self._fresh_seconds = fresh_seconds
        self._lock = threading.Lock()
        self._flight: Future[T] | None = None
        self._landed_at = 0.0

    def begin(self) -> Future[T]:
        """The present answer, or the one that is being found out. Do not cancel it: it is everybody's."""
        with self._lock:
            if self._flight is None or self._outdated(self._flight):
                self._flight = Future()
                threading.Thread(target=self._fly, args=(self._flight,), daemon=True).start()
            return self._flight

    def ask(self, timeout: float) -> T:
        """Waits at most `timeout` seconds. Raises TimeoutError, or what the question raised."""
        return self.begin().result(timeout)

    def _outdated(self, flight: Future[T]) -> bool:
        return flight.done() and time.monotonic() - self._landed_at > self._fresh_seconds

    def _fly(self, flight: Future[T]) -> None:
        try:
            answer = self._question()
        except BaseException as error:
            self._landed_at = time.monotonic()
            flight.set_exception(error)
        else:
            self._landed_at = time.monotonic()
            flight.set_result(answer)
