"""What the circuit breaker remembers: the last N calls, or the calls of the last T seconds."""

from __future__ import annotations

import threading
from typing import NamedTuple, Protocol

from resilience.counter import Counter

# One call's outcome, as two bits.
GOOD = 0
FAILED = 1
SLOW = 2
_UNUSED = 4


class Counts(NamedTuple):
    """Calls in the window, how many of them failed, how many were slow."""

    total: int
    failures: int
    slow: int


class Window(Protocol):
    """A bounded memory of outcomes. Thread-safe."""

    def add(self, code: int, now: float) -> bool:
        """Remember an outcome; True when the rates must be looked at again."""
        ...

    def add_good(self, now: float) -> bool:
        """`add(GOOD, now)`, which is what nearly every call is."""
        ...

    def counts(self, now: float) -> Counts:
        """What is remembered at `now`."""
        ...

    @property
    def recorded(self) -> int:
        """Outcomes ever added, forgotten ones included."""
        ...


class CountWindow:
    """The last `size` calls.

    A ring of bytes: a counter hands out the places, one byte store fills each. Both are single C calls, so a
    success costs no lock. Rates are counted only when they can have risen: after an outcome that was
    not good, and while the first `min_calls` come in (until then the rate was undefined).
    """

    __slots__ = ("_min_calls", "_next", "_ring", "_size", "_tickets")

    def __init__(self, size: int, min_calls: int) -> None:
        self._size = size
        self._min_calls = min_calls
        self._ring = bytearray([_UNUSED]) * size
        self._tickets = Counter()
        self._next = self._tickets.add

    def add(self, code: int, now: float) -> bool:
        ticket = self._next()
        self._ring[ticket % self._size] = code
        return code != GOOD or ticket < self._min_calls

    def add_good(self, now: float) -> bool:
        ticket = self._next()
        self._ring[ticket % self._size] = GOOD
        return ticket < self._min_calls

    def counts(self, now: float) -> Counts:
        ring = bytes(self._ring)
        both = ring.count(FAILED | SLOW)
        return Counts(len(ring) - ring.count(_UNUSED), ring.count(FAILED) + both, ring.count(SLOW) + both)

    @property
    def recorded(self) -> int:
        return self._tickets.value


_SLICES = 10


class TimeWindow:
    """The calls of the last `seconds`, in ten slices: the oldest slice is dropped whole.

    So it covers between 90 and 100 % of the time asked for. A success can raise a time window's rates too (an
    older success may just have left), so every call asks for a look. The locked section holds no call and no
    loop, else the threads would queue behind it.
    """

    __slots__ = ("_added", "_failures", "_lock", "_slice", "_slow", "_stamps", "_totals")

    def __init__(self, seconds: float) -> None:
        self._slice = seconds / _SLICES
        self._lock = threading.Lock()
        self._stamps = [-1] * _SLICES
        self._totals = [0] * _SLICES
        self._failures = [0] * _SLICES
        self._slow = [0] * _SLICES
        self._added = Counter()

    def add(self, code: int, now: float) -> bool:
        stamp = int(now / self._slice)
        place = stamp % _SLICES
        self._added.add()
        with self._lock:
            if self._stamps[place] < stamp:
                self._stamps[place] = stamp
                self._totals[place] = self._failures[place] = self._slow[place] = 0
            if self._stamps[place] == stamp:  # else the clock was read a whole window ago: already forgotten
                self._totals[place] += 1
                self._failures[place] += code & FAILED
                self._slow[place] += code >> 1
        return True

    def add_good(self, now: float) -> bool:
        return self.add(GOOD, now)

    def counts(self, now: float) -> Counts:
        oldest = int(now / self._slice) - _SLICES + 1
        with self._lock:
            stamps, totals = self._stamps[:], self._totals[:]
            failures, slow = self._failures[:], self._slow[:]
        live = [place for place, stamp in enumerate(stamps) if stamp >= oldest]
        return Counts(
            sum(totals[place] for place in live),
            sum(failures[place] for place in live),
            sum(slow[place] for place in live),
        )

    @property
    def recorded(self) -> int:
        return self._added.value
