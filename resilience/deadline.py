"""How long the caller is still waiting: made once at the edge, handed down, never extended."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from resilience.clock import SYSTEM_CLOCK, Clock

HEADER = "X-Envoy-Expected-Rq-Timeout-Ms"
"""Request header that carries the milliseconds left, in and out (Envoy's name, so that meshes
understand it).
"""

_MOST_DIGITS = 10  # 115 days in milliseconds; anything longer is no deadline but noise


class Deadline:
    """A point on the monotonic clock after which the answer is of no use to anybody.

    Immutable, so safe to share between threads. Pass it explicitly, or through `use_deadline`.
    """

    __slots__ = ("clock", "end")

    def __init__(self, end: float, clock: Clock = SYSTEM_CLOCK) -> None:
        """`end` is a reading of `clock` in seconds; `after_ms` is the usual way to make one."""
        self.end = end
        self.clock = clock

    @classmethod
    def after_ms(
        cls, budget_ms: float, *, incoming: str | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> Deadline:
        """The smaller of the own budget and the caller's, both in milliseconds from now.

        `incoming` is the raw value of `HEADER`: whole milliseconds in at most ten digits. "0" is valid
        and means that the caller has no time left. Everything else (sign, fraction, words, longer
        numbers, empty) is ignored: a stranger can shorten the own budget but neither lengthen nor break
        it. Raises ValueError when the own budget is negative or not a finite number.
        """
        if not math.isfinite(budget_ms) or budget_ms < 0:
            raise ValueError(f"budget_ms must be a finite number ≥ 0, got {budget_ms}")
        theirs = _milliseconds(incoming)
        if theirs is not None and theirs < budget_ms:
            budget_ms = theirs
        return cls(clock.monotonic() + budget_ms / 1000, clock)

    def remaining(self) -> float:
        """Seconds left, never negative."""
        left = self.end - self.clock.monotonic()
        return left if left > 0 else 0.0

    def remaining_ms(self) -> int:
        """Whole milliseconds left, rounded down, never negative."""
        return int(self.remaining() * 1000)

    @property
    def expired(self) -> bool:
        """True when no time is left."""
        return self.clock.monotonic() >= self.end

    def child(self, seconds: float) -> Deadline:
        """A deadline `seconds` (≥ 0) from now, but never later than this one.

        Counted from now and not from a share handed out in advance, so time an earlier step did not use
        is still there for the next. Raises ValueError for a negative or undefined share.
        """
        if not seconds >= 0:
            raise ValueError(f"seconds must be ≥ 0, got {seconds}")
        return Deadline(min(self.clock.monotonic() + seconds, self.end), self.clock)

    def __repr__(self) -> str:
        return f"<Deadline {self.remaining_ms()} ms left>"


def _milliseconds(text: str | None) -> int | None:
    text = (text or "").strip(" \t")
    if 0 < len(text) <= _MOST_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    return None


_current: ContextVar[Deadline | None] = ContextVar("resilience_deadline", default=None)


def current_deadline() -> Deadline | None:
    """The deadline of the work this thread or task is doing, if somebody set one."""
    return _current.get()


def own_deadline(budget_ms: float) -> Deadline:
    """A deadline `budget_ms` milliseconds from now, or the current one if that comes sooner."""
    outer = current_deadline()
    return Deadline.after_ms(budget_ms) if outer is None else outer.child(budget_ms / 1000)


@contextmanager
def use_deadline(deadline: Deadline) -> Iterator[Deadline]:
    """Make `deadline` the current one inside the block; a tighter one already in force wins."""
    outer = _current.get()
    if outer is not None and outer.end < deadline.end:
        deadline = outer
    token = _current.set(deadline)
    try:
        yield deadline
    finally:
        _current.reset(token)
