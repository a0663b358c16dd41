"""When a failed call may be repeated, after which pause, and how often in all."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

from resilience.counter import Counter
from resilience.errors import ConnectFailed, OutcomeUnknown, ServerError

_MOST_SAVED = 10.0  # repeats a quiet time may save up; more would be a burst when the neighbour stumbles


@dataclass(frozen=True)
class RetryPolicy:
    """How a chain repeats.

    attempts: including the first. backoff: seconds the first pause is drawn below, doubled for each
    further one. backoff_cap: bound of that doubling, and of any `Retry-After`; applied before the
    jitter, because a cap after it would make all waits equal. budget_ratio: repeats per first attempt
    over time. budget_floor_per_second: repeats per second that are always possible.
    """

    attempts: int = 1
    backoff: float = 0.05
    backoff_cap: float = 1.0
    budget_ratio: float = 0.1
    budget_floor_per_second: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= 10:
            raise ValueError(f"attempts must be between 1 and 10, got {self.attempts}")
        if not (math.isfinite(self.backoff) and self.backoff >= 0):
            raise ValueError(f"backoff must be a finite number of seconds ≥ 0, got {self.backoff}")
        if not (math.isfinite(self.backoff_cap) and self.backoff_cap >= self.backoff):
            raise ValueError(
                f"backoff_cap must be finite and ≥ backoff ({self.backoff}), got {self.backoff_cap}"
            )
        if not 0 <= self.budget_ratio <= 1:
            raise ValueError(f"budget_ratio must be between 0 and 1, got {self.budget_ratio}")
        if not 0 <= self.budget_floor_per_second <= 1000:
            raise ValueError(
                f"budget_floor_per_second must be between 0 and 1000, got {self.budget_floor_per_second}"
            )


def may_repeat(error: BaseException, repeatable: bool) -> bool:
    """Whether a repeat could help and can do no harm.

    A failed connection always may: nothing was sent. An unknown outcome, a server error or an operating
    system error only if the caller says that doing it twice is doing it once. Never a refusal of our
    own layers (asking again at once is the storm they are there to stop), never a real answer.
    """
    if isinstance(error, ConnectFailed):
        return True
    return repeatable and isinstance(error, (OutcomeUnknown, ServerError, OSError))


def pause_before(repeat: int, policy: RetryPolicy, retry_after: float | None, chance: float) -> float:
    """Seconds to wait before repeat number `repeat` (1 is the second attempt).

    `chance` is a random number in [0, 1): full jitter. A `Retry-After` lengthens the pause, up to the cap.
    """
    ceiling = min(policy.backoff_cap, policy.backoff * 2.0 ** (repeat - 1))
    pause = ceiling * chance
    if retry_after is not None and retry_after > pause:
        pause = min(retry_after, policy.backoff_cap)
    return pause


class RetryBudget:
    """A token bucket that keeps repeats below a share of first attempts.

    Nothing is paid in while calls succeed: the first attempts are counted anyway, and what they earned
    is worked out when somebody wants to repeat. Thread-safe.
    """

    __slots__ = ("_first", "_lock", "_policy", "_tokens", "_when", "refused")

    def __init__(self, policy: RetryPolicy, now: float) -> None:
        self._policy = policy
        self._lock = threading.Lock()
        self._tokens = min(policy.budget_floor_per_second, _MOST_SAVED)
        self._first = 0
        self._when = now
        self.refused = Counter()

    def spend(self, first_attempts: int, now: float) -> bool:
        """Pay for one repeat; False when the budget is empty.

        `first_attempts`: how many there were so far.
        """
        policy = self._policy
        with self._lock:
            earned = policy.budget_ratio * max(0, first_attempts - self._first)
            earned += policy.budget_floor_per_second * max(0.0, now - self._when)
            self._first = max(self._first, first_attempts)
            self._when = max(self._when, now)
            self._tokens = min(_MOST_SAVED, self._tokens + earned)
            if self._tokens >= 1:
                self._tokens -= 1
                return True
        self.refused.add()
        return False
