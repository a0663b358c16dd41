"""Refuse at the door what cannot be served in time, the least important first.

Threads and queues in front of them hide an overload until everybody waits longer than anybody is
willing to. A refusal costs microseconds and says when to come back.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum

from resilience.clock import SYSTEM_CLOCK, Clock
from resilience.counter import Counter
from resilience.errors import ResilienceError


class Priority(IntEnum):
    """Who goes first. PROBE is exempt from every limit and not counted; DUTY are the people on duty."""

    PROBE = 0
    DUTY = 1
    PAYING = 2
    CHECKOUT = 3
    BROWSING = 4


class Overloaded(ResilienceError):
    """Refused at the door. `reason`: "in_flight" or "queue_time"."""

    def __init__(self, message: str, *, reason: str, retry_after: float) -> None:
        super().__init__(message, retry_after=retry_after)
        self.reason = reason


@dataclass(frozen=True)
class SheddingPolicy:
    """limit: requests in work at a time. checkout_share, browsing_share: the part of the limit up to
    which each of them is let in; what is above is kept for the more important. duty_extra: places beyond
    the limit, for the people on duty alone. queue_seconds: a request that waited longer than this in
    front of us is refused. retry_after: seconds told to the refused.
    adaptive: follow measured latency, between `least` and `limit`.
    """

    limit: int
    checkout_share: float = 0.9
    browsing_share: float = 0.75
    duty_extra: int = 0
    queue_seconds: float = 0.25
    retry_after: float = 1.0
    adaptive: bool = False
    least: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.limit:
            raise ValueError(f"least must be between 1 and limit ({self.limit}), got {self.least}")
        if not 0 < self.browsing_share <= self.checkout_share <= 1:
            raise ValueError(
                "shares must satisfy 0 < browsing_share ≤ checkout_share ≤ 1, "
                f"got {self.browsing_share} and {self.checkout_share}"
            )
        if self.duty_extra < 0:
            raise ValueError(f"duty_extra must be ≥ 0, got {self.duty_extra}")
        for name in ("queue_seconds", "retry_after"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a finite number of seconds > 0, got {value}")


_TEXTS = {"in_flight": "too many requests in work", "queue_time": "waited too long in the queue"}


class LoadShedder:
    """The limit of one process. Thread-safe; a decision takes one lock for a few instructions."""

    def __init__(self, policy: SheddingPolicy, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.policy = policy
        self.shed = {priority: Counter() for priority in Priority}
        self._now = clock.monotonic
        self._lock = threading.Lock()
        self._in_flight = 0
        self._gradient = GradientLimit(policy.least, policy.limit) if policy.adaptive else None
        self._shares = {
            Priority.DUTY: 1.0,
            Priority.PAYING: 1.0,
            Priority.CHECKOUT: policy.checkout_share,
            Priority.BROWSING: policy.browsing_share,
        }

    @property
    def in_flight(self) -> int:
        """Requests in work, probes not counted."""
        return self._in_flight

    @property
    def limit(self) -> int:
        """Requests allowed in work at this moment."""
        return self.policy.limit if self._gradient is None else self._gradient.value

    @contextmanager
    def place(self, priority: Priority, queued: float = 0.0) -> Iterator[None]:
        """Serve one request inside the block. `queued`: seconds it waited before it came here.

        Raises Overloaded at once when it shall not be served.
        """
        if priority is Priority.PROBE:
            yield
            return
        self._enter(priority, queued)
        started = self._now()
        try:
            yield
        finally:
            took = self._now() - started
            with self._lock:
                busy = self._in_flight
                self._in_flight = busy - 1
            if self._gradient is not None:
                self._gradient.observe(took, busy)

    def ask_ahead(self, priority: Priority, coming: int) -> None:
        """For a server that refuses before it gives a request a thread; `place` is asked all the same.

        Raises Overloaded if there is no place behind `coming` others, which are on their way to theirs.
        """
        if priority is not Priority.PROBE and self._in_flight + coming >= self._allowed(priority):
            raise self._refusal(priority, "in_flight")

    def _enter(self, priority: Priority, queued: float) -> None:
        if queued > self.policy.queue_seconds and priority is not Priority.DUTY:
            raise self._refusal(priority, "queue_time")
        allowed = self._allowed(priority)
        with self._lock:
            admitted = self._in_flight < allowed
            if admitted:
                self._in_flight += 1
        if not admitted:
            raise self._refusal(priority, "in_flight")

    def _allowed(self, priority: Priority) -> int:
        # At least one, else a small limit would never let the lower priorities in at all.
        allowed = max(1, int(self.limit * self._shares[priority]))
        return allowed + self.policy.duty_extra if priority is Priority.DUTY else allowed

    def _refusal(self, priority: Priority, reason: str) -> Overloaded:
        self.shed[priority].add()
        return Overloaded(_TEXTS[reason], reason=reason, retry_after=self.policy.retry_after)


_SAMPLE = 20  # requests per adjustment
_TOLERANCE = 1.5  # latency may rise by half before the limit falls
_SMOOTHING = 0.2  # part of a step taken at once
_MEMORY = 0.02  # weight of a sample in what counts as normal


class GradientLimit:
    """A limit that falls when latency rises above what is normal, and grows while it does not.

    After Netflix' concurrency limits ("Gradient2"): limit × normal ÷ recent latency, plus room for a
    short queue of √limit. Starts at the top. It grows only when it was used, so quiet times prove
    nothing. Thread-safe.
    """

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most
        self._lock = threading.Lock()
        self._limit = float(most)
        self._normal: float | None = None
        self._sum = 0.0
        self._count = 0
        self._busiest = 0

    @property
    def value(self) -> int:
        """Requests allowed at a time."""
        return int(self._limit)

    def observe(self, seconds: float, in_flight: int) -> None:
        """One request took `seconds` while `in_flight` were in work, itself included."""
        with self._lock:
            self._sum += seconds
            self._count += 1
            self._busiest = max(self._busiest, in_flight)
            if self._count >= _SAMPLE:
                self._adjust(self._sum / self._count)
                self._sum, self._count, self._busiest = 0.0, 0, 0

    def _adjust(self, recent: float) -> None:
        if self._normal is None or recent < self._normal:
            self._normal = recent  # faster than normal is the new normal at once
        else:
            self._normal += _MEMORY * (recent - self._normal)
        gradient = 1.0 if recent <= 0 else max(0.5, min(1.0, _TOLERANCE * self._normal / recent))
        target = self._limit * gradient + math.sqrt(self._limit)
        if target > self._limit and self._busiest < self._limit / 2:
            return
        moved = self._limit + _SMOOTHING * (target - self._limit)
        self._limit = min(self._most, max(self._least, moved))


_START = re.compile(r"(?:t=)?(\d{10,16}(?:\.\d{1,9})?)")
_ABSURD_SECONDS = 600.0


def queue_seconds(header: str | None, wall_now: float) -> float:
    """How long a request waited since the proxy stamped it (`X-Request-Start`), in seconds.

    Understands seconds, milliseconds and microseconds since 1970, with or without `t=`. Garbage, times in the
    future and waits beyond ten minutes (a wrong clock, not a queue) count as no wait.
    """
    match = _START.fullmatch((header or "").strip())
    if match is None:
        return 0.0
    stamp = float(match[1])
    while stamp > 1e11:
        stamp /= 1000
    waited = wall_now - stamp
    return waited if 0 < waited <= _ABSURD_SECONDS else 0.0
