"""Never more than so many calls in any stretch of time of a given length."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from resilience.clock import SYSTEM_CLOCK, Clock
from resilience.counter import Counter
from resilience.errors import RateLimited


@dataclass(frozen=True)
class LimiterPolicy:
    """At most `limit` calls in any `period` seconds. Small periods smooth: 5 per 0.1 s, not 50 per second."""

    limit: int
    period: float

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= 100_000:
            raise ValueError(f"limit must be between 1 and 100,000, got {self.limit}")
        if not (math.isfinite(self.period) and self.period > 0):
            raise ValueError(f"period must be a finite number of seconds > 0, got {self.period}")


class SlidingLimiter:
    """An exact sliding window, without waiting and without a lock.

    There are `limit` tokens, each stamped with the moment it was last used, and none may be used twice
    within a period. So any window of that length sees each token at most once, hence at most `limit`
    calls; fixed cycles would let twice that through at their edge. `popleft` and `append` are single C
    calls. When two threads meet, one of them may find the tokens for an instant in the other's hand and
    be refused: the error is always on the safe side. Thread-safe.
    """

    __slots__ = ("_clock", "_period", "_tokens", "name", "policy", "rejected")

    def __init__(self, policy: LimiterPolicy, *, name: str = "", clock: Clock = SYSTEM_CLOCK) -> None:
        self.policy = policy
        self.name = name
        self.rejected = Counter()
        self._clock = clock
        self._period = policy.period
        self._tokens = deque([-math.inf] * policy.limit)

    def acquire(self) -> None:
        """Use one token now. Raises RateLimited, with the seconds until one is free, when there is none."""
        self.take(self._clock.monotonic())

    def take(self, now: float) -> None:
        """`acquire` for callers that have just read the clock."""
        tokens = self._tokens
        try:
            used = tokens.popleft()
        except IndexError:
            used = now  # every token is in another thread's hand
        else:
            if now - used >= self._period:
                tokens.append(now)
                return
            # Perhaps the thread slept since it read the clock, and others have used the tokens meanwhile.
            now = self._clock.monotonic()
            if now - used >= self._period:
                tokens.append(now)
                return
            tokens.appendleft(used)
        self.rejected.add()
        wait = min(self._period, max(0.0, used + self._period - now))
        raise RateLimited(
            f"{self.name}: limit of {self.policy.limit} calls per {self._period} s reached", retry_after=wait
        )

    def available(self) -> int:
        """Tokens that could be used now. Walks all of them: for metrics, not for deciding."""
        now = self._clock.monotonic()
        return sum(1 for used in self._tokens.copy() if now - used >= self._period)
