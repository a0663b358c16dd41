"""The arithmetic of a time budget: pure functions, milliseconds in whole numbers unless a name says
otherwise.

Used by whoever sets the timeouts, checks them, or prints the table, so that all three say the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MOST_CONNECT_MS = 150
"""A connection inside one site takes a few milliseconds; three lost packets are not worth waiting for."""
MOST_POOL_WAIT_MS = 50
"""Waiting for a connection is waiting for our own congestion."""
LEAST_CALL_MS = 10
"""Whoever gets less cannot be answered over a network."""
_PAUSE_PART = 4  # the pauses may take at most one part in so many of a share


@dataclass(frozen=True)
class CallBudget:
    """What one dependency's share of the budget allows. The pauses double from the first up to the cap."""

    share_ms: int
    attempts: int
    first_pause_ms: int
    pause_cap_ms: int
    call_ms: int
    connect_ms: int
    read_ms: int
    pool_wait_ms: int
    worst_case_ms: int


def shares(budget_ms: int, own_work_ms: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Divide what is left after the own work by weight, rounded down, so the sum never exceeds it.

    Raises ValueError when nothing is left, or a weight is not positive.
    """
    left = budget_ms - own_work_ms
    if own_work_ms < 0:
        raise ValueError(f"own work must be ≥ 0 ms, got {own_work_ms}")
    if left <= 0:
        raise ValueError(f"own work of {own_work_ms} ms leaves nothing of a budget of {budget_ms} ms")
    for name, weight in weights.items():
        if weight < 1:
            raise ValueError(f"the share of {name} must be ≥ 1, got {weight}")
    total = sum(weights.values())
    return {name: left * weight // total for name, weight in weights.items()}


def call_budget(share_ms: int, attempts: int, backoff_ms: int) -> CallBudget:
    """Timeouts that fit a share: attempts × call + pauses ≤ share.

    The pauses double from `backoff_ms`, or from less, so that together they take at most a quarter.
    Raises ValueError when the share is too small for that many attempts of at least 1 ms.
    """
    if attempts < 1:
        raise ValueError(f"attempts must be ≥ 1, got {attempts}")
    if backoff_ms < 0:
        raise ValueError(f"backoff must be ≥ 0 ms, got {backoff_ms}")
    parts = 2 ** (attempts - 1) - 1  # 1 + 2 + 4 + …: how many first pauses all pauses together are
    first = min(backoff_ms, share_ms // _PAUSE_PART // parts) if parts else 0
    call = (share_ms - parts * first) // attempts
    if call < 1:
        raise ValueError(f"a share of {share_ms} ms is too small for {attempts} attempts")
    return CallBudget(
        share_ms=share_ms,
        attempts=attempts,
        first_pause_ms=first,
        pause_cap_ms=first * 2 ** max(0, attempts - 2),
        call_ms=call,
        connect_ms=min(MOST_CONNECT_MS, call),
        read_ms=call,
        pool_wait_ms=min(MOST_POOL_WAIT_MS, call),
        worst_case_ms=attempts * call + parts * first,
    )


def doubling_pauses_ms(attempts: int, first_ms: float, cap_ms: float = math.inf) -> list[float]:
    """The longest pauses between `attempts` attempts: the first, doubled each time, up to the cap."""
    return [min(cap_ms, first_ms * 2**step) for step in range(attempts - 1)]


def worst_case_ms(attempts: int, timeout_ms: float, pauses_ms: Sequence[float] = ()) -> float:
    """How long one call can take in all when every attempt runs into its timeout."""
    return attempts * timeout_ms + sum(pauses_ms)


def threads_held(rps: float, seconds: float) -> float:
    """Threads busy on average when `rps` calls per second take `seconds` each (Little's law)."""
    return rps * seconds


def rps_sustained(threads: int, seconds: float) -> float:
    """Calls per second that `threads` can carry when each takes `seconds` (Little's law, the other way)."""
    return math.inf if seconds == 0 else threads / seconds


def repeat_amplification(attempts: int, budget_ratio: float = 1.0) -> float:
    """Requests at the neighbour per call of ours in a full outage.

    Without a retry budget it is the number of attempts; with one, repeats stay below `budget_ratio` of calls.
    """
    return 1 + min(attempts - 1, budget_ratio)


def seconds_until_open(
    min_calls: int, rps: float, timeout_seconds: float, max_concurrent: int | None = None
) -> float:
    """Seconds from the moment a dependency hangs until its breaker opens.

    The breaker hears of a hanging call when its timeout is over, and needs `min_calls` of them. They
    arrive at `rps`, but no more than `max_concurrent` run at a time: the rest is refused and tells the
    breaker nothing. Infinite when no calls arrive.
    """
    if rps <= 0:
        return math.inf
    pace = 1 / rps
    if max_concurrent is not None and timeout_seconds > max_concurrent * pace:
        # A new call can only begin when an earlier one has run into its timeout.
        rounds, place = divmod(min_calls - 1, max_concurrent)
        return (rounds + 1) * timeout_seconds + place * pace
    return (min_calls - 1) * pace + timeout_seconds


def seconds_to_fill_window(window: int, rps: float) -> float:
    """Seconds until a window of `window` calls has been seen once. Infinite when no calls arrive."""
    return math.inf if rps <= 0 else window / rps


def calls_in_window(window_seconds: float, rps: float) -> float:
    """Calls a time window sees at the expected traffic; below `min_calls` its breaker can never open."""
    return window_seconds * rps


def queue_wait_ms(queue: int, service_ms: float, threads: int) -> float:
    """How long the last of `queue` waiting requests waits when `threads` serve them in `service_ms` each."""
    return queue * service_ms / threads


def drain_seconds(backlog: int, rate_per_second: float) -> float:
    """Seconds to work off a backlog. Infinite when nothing is worked off."""
    return math.inf if rate_per_second <= 0 else backlog / rate_per_second


def jitter_swallowed(first_pause_ms: float, cap_ms: float) -> bool:
    """True when doubling has no room: a cap at or below the first pause makes every pause alike."""
    return cap_ms <= first_pause_ms
