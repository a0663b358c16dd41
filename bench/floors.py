"""Yardsticks: the least work that could be called a retry, breaker, limiter and bulkhead.

Not usable: no events, no generations, no leases, a limiter that lets twice its limit through at an edge. Each
comes without locks, trusting single C calls, and with one lock in every layer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count
from threading import Lock
from time import monotonic

Call = Callable[[], object]
SLOW = 2.0
PLACES = 64
WINDOW = 100
LIMIT = 10**9


class Refused(Exception):
    """The floor's only refusal."""


class FreeBreaker:
    """A ring of outcome bytes filled by a counter; successes are never judged."""

    def __init__(self) -> None:
        self.open_until = 0.0
        self.ring = bytearray(WINDOW)
        self.ticket = count().__next__

    def call(self, operation: Call) -> object:
        started = monotonic()
        if started < self.open_until:
            raise Refused
        try:
            value = operation()
        except BaseException:
            self.ring[self.ticket() % WINDOW] = 1
            if self.ring.count(1) * 2 >= WINDOW:
                self.open_until = monotonic() + 30
            raise
        self.ring[self.ticket() % WINDOW] = 2 if monotonic() - started > SLOW else 0
        return value


class LockedBreaker:
    """The same ring with running totals, under one lock that holds no call."""

    def __init__(self) -> None:
        self.open_until = 0.0
        self.ring = bytearray(WINDOW)
        self.lock = Lock()
        self.place = self.failed = self.slow = 0

    def note(self, code: int) -> None:
        with self.lock:
            place, ring = self.place, self.ring
            old = ring[place]
            self.failed += (code & 1) - (old & 1)
            self.slow += (code >> 1) - (old >> 1)
            ring[place] = code
            self.place = place + 1 if place + 1 < WINDOW else 0

    def call(self, operation: Call) -> object:
        started = monotonic()
        if started < self.open_until:
            raise Refused
        try:
            value = operation()
        except BaseException:
            self.note(1)
            raise
        self.note(2 if monotonic() - started > SLOW else 0)
        return value


class FreeLimiter:
    """Fixed cycles: a counter that is replaced when its second is over."""

    def __init__(self) -> None:
        self.cycle = (0.0, count().__next__)

    def call(self, operation: Call) -> object:
        now = monotonic()
        ends, used = self.cycle
        if now >= ends:
            ends, used = self.cycle = (now + 1, count().__next__)
        if used() >= LIMIT:
            raise Refused
        return operation()


class LockedLimiter:
    def __init__(self) -> None:
        self.lock = Lock()
        self.ends, self.used = 0.0, 0

    def call(self, operation: Call) -> object:
        now = monotonic()
        with self.lock:
            if now >= self.ends:
                self.ends, self.used = now + 1, 0
            self.used += 1
            refused = self.used > LIMIT
        if refused:
            raise Refused
        return operation()


class FreeBulkhead:
    def __init__(self) -> None:
        self.places = deque(range(PLACES))

    def call(self, operation: Call) -> object:
        try:
            place = self.places.pop()
        except IndexError:
            raise Refused from None
        try:
            return operation()
        finally:
            self.places.append(place)


class LockedBulkhead:
    def __init__(self) -> None:
        self.lock = Lock()
        self.free = PLACES

    def call(self, operation: Call) -> object:
        with self.lock:
            got = self.free > 0
            self.free -= got
        if not got:
            raise Refused
        try:
            return operation()
        finally:
            with self.lock:
                self.free += 1


def layered(operation: Call, *, locks: bool) -> Call:
    """Retry around breaker around limiter around bulkhead, as four functions."""
    breaker = LockedBreaker() if locks else FreeBreaker()
    limiter = LockedLimiter() if locks else FreeLimiter()
    bulkhead = LockedBulkhead() if locks else FreeBulkhead()

    def in_bulkhead() -> object:
        return bulkhead.call(operation)

    def in_limiter() -> object:
        return limiter.call(in_bulkhead)

    def in_breaker() -> object:
        return breaker.call(in_limiter)

    def in_retry() -> object:
        attempt = 1
        while True:
            try:
                return in_breaker()
            except OSError:
                if attempt == 3:
                    raise
                attempt += 1

    return in_retry


def open_breaker() -> FreeBreaker:
    """One that refuses everything: a clock, a comparison, a raise."""
    breaker = FreeBreaker()
    breaker.open_until = monotonic() + 1e9
    return breaker
