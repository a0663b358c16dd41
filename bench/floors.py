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
MIN_CALLS = 10
LIMIT = 10**9


class Refused(Exception):
    """The floor's only refusal."""


class FreeBreaker:
    """A ring of outcome bytes filled by a counter, judged after what was not good and when `MIN_CALLS` are in."""

    def __init__(self) -> None:
        self.is_open = False
        self.open_until = 0.0
        self.window = (bytearray(WINDOW), count().__next__)

    def call(self, operation: Call) -> object:
        if self.is_open:
            if monotonic() < self.open_until:
                raise Refused
            self.is_open = False
            self.window = (bytearray(WINDOW), count().__next__)
        ring, ticket = self.window
        started = monotonic()
        try:
            value = operation()
        except Refused:
            raise
        except BaseException:
            self.note(ring, ticket(), 1)
            raise
        place = ticket()
        if monotonic() - started > SLOW:
            self.note(ring, place, 2)
        else:
            ring[place % WINDOW] = 0
            if place + 1 == MIN_CALLS:
                self.judge(ring, place)
        return value

    def note(self, ring: bytearray, place: int, code: int) -> None:
        ring[place % WINDOW] = code
        self.judge(ring, place)

    def judge(self, ring: bytearray, place: int) -> None:
        seen = min(place + 1, WINDOW)
        if seen >= MIN_CALLS and ring.count(1) * 2 >= seen:
            self.open_until = monotonic() + 30
            self.is_open = True


class LockedBreaker:
    """The same ring with running totals, under one lock that holds no call."""

    def __init__(self) -> None:
        self.is_open = False
        self.open_until = 0.0
        self.ring = bytearray(WINDOW)
        self.lock = Lock()
        self.place = self.seen = self.failed = self.slow = 0

    def note(self, code: int) -> None:
        with self.lock:
            place, ring = self.place, self.ring
            old = ring[place]
            self.failed += (code & 1) - (old & 1)
            self.slow += (code >> 1) - (old >> 1)
            ring[place] = code
            self.place = place + 1 if place + 1 < WINDOW else 0
            self.seen += self.seen < WINDOW
            if self.seen >= MIN_CALLS and self.failed * 2 >= self.seen:
                self.is_open = True

    def call(self, operation: Call) -> object:
        if self.is_open:
            raise Refused
        started = monotonic()
        try:
            value = operation()
        except Refused:
            raise
        except BaseException:
            self.note(1)
            raise
        self.note(2 if monotonic() - started > SLOW else 0)
        return value


class FreeLimiter:
    """Fixed cycles: a counter that is replaced when its second is over."""

    def __init__(self) -> None:
        self.cycle = (0.0, count().__next__)

    def acquire(self) -> None:
        now = monotonic()
        ends, used = self.cycle
        if now >= ends:
            ends, used = self.cycle = (now + 1, count().__next__)
        if used() >= LIMIT:
            raise Refused

    def call(self, operation: Call) -> object:
        self.acquire()
        return operation()


class LockedLimiter:
    def __init__(self) -> None:
        self.lock = Lock()
        self.ends, self.used = 0.0, 0

    def acquire(self) -> None:
        now = monotonic()
        with self.lock:
            if now >= self.ends:
                self.ends, self.used = now + 1, 0
            self.used += 1
            refused = self.used > LIMIT
        if refused:
            raise Refused

    def call(self, operation: Call) -> object:
        self.acquire()
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


class Retry:
    def call(self, operation: Call) -> object:
        attempt = 1
        while True:
            try:
                return operation()
            except OSError:
                if attempt == 3:
                    raise
                attempt += 1


def layered(operation: Call, *, locks: bool) -> Call:
    """Retry around breaker around limiter around bulkhead: four objects, each usable alone."""
    retry = Retry()
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
        return retry.call(in_breaker)

    return in_retry


def open_breaker() -> FreeBreaker:
    """One that refuses everything: a clock, a comparison, a raise."""
    breaker = FreeBreaker()
    breaker.is_open = True
    breaker.open_until = monotonic() + 1e9
    return breaker
