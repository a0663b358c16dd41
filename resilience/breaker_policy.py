"""The circuit breaker's law as data: its numbers, its states, its transitions, what it shows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """Names after resilience4j."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    FORCED_OPEN = "forced_open"  # by a person; lets nothing through until reset
    DISABLED = "disabled"  # by a person; lets everything through, remembers nothing
    METRICS_ONLY = "metrics_only"  # by a person; lets everything through, remembers and reports


class Trigger(Enum):
    """What can move a breaker."""

    THRESHOLD = "threshold"
    WAIT_OVER = "wait_over"
    PROBES_GOOD = "probes_good"
    PROBES_BAD = "probes_bad"
    FORCE_OPEN = "force_open"
    DISABLE = "disable"
    METRICS_ONLY = "metrics_only"
    RESET = "reset"


_BY_HAND = {
    Trigger.FORCE_OPEN: State.FORCED_OPEN,
    Trigger.DISABLE: State.DISABLED,
    Trigger.METRICS_ONLY: State.METRICS_ONLY,
    Trigger.RESET: State.CLOSED,
}

TRANSITIONS: Mapping[tuple[State, Trigger], State] = {
    (State.CLOSED, Trigger.THRESHOLD): State.OPEN,
    (State.OPEN, Trigger.WAIT_OVER): State.HALF_OPEN,
    (State.HALF_OPEN, Trigger.PROBES_GOOD): State.CLOSED,
    (State.HALF_OPEN, Trigger.PROBES_BAD): State.OPEN,
    **{(state, trigger): target for state in State for trigger, target in _BY_HAND.items()},
}
"""Every step there is; a pair that is missing cannot happen."""

NOT_CLOSED = frozenset({State.OPEN, State.HALF_OPEN, State.FORCED_OPEN})


@dataclass(frozen=True)
class BreakerPolicy:
    """When to open, how long, and how to find out that it is over. Rates are percent, times are seconds.

    window: remember that many calls; or, when `window_seconds` is given, the calls of that time instead.
    min_calls: below this the rates are undefined. slow_call: a call that takes longer is slow (None: no such
    limit). open_seconds, open_factor, open_cap: the wait, grown by the factor with each successive
    opening up to the cap. jitter: the wait is lengthened by a random share up to this one, so that the
    replicas of a service do not probe together. half_open_calls: probes at a time, and verdicts needed.
    half_open_max_seconds: the lease of every call; one that never ends counts as failed when its lease
    does. count_refusals: let our own refusals behind the breaker (limiter, bulkhead, pool, time) count
    as failures while CLOSED.
    """

    window: int = 10
    window_seconds: float | None = None
    min_calls: int = 10
    failure_rate: float = 50.0
    slow_call: float | None = None
    slow_rate: float = 80.0
    open_seconds: float = 30.0
    open_factor: float = 1.0
    open_cap: float = 300.0
    jitter: float = 0.1
    half_open_calls: int = 3
    half_open_max_seconds: float = 30.0
    count_refusals: bool = False

    def __post_init__(self) -> None:
        self._check_window()
        for name in ("failure_rate", "slow_rate"):
            _require(
                0 < getattr(self, name) <= 100, name, "above 0 and at most 100 percent", getattr(self, name)
            )
        if self.slow_call is not None:
            _require(_positive(self.slow_call), "slow_call", "a finite number of seconds > 0", self.slow_call)
        for name in ("open_seconds", "half_open_max_seconds"):
            _require(_positive(getattr(self, name)), name, "a finite number > 0", getattr(self, name))
        _require(1 <= self.open_factor <= 10, "open_factor", "between 1 and 10", self.open_factor)
        _require(math.isfinite(self.open_cap), "open_cap", "finite", self.open_cap)
        if self.open_factor > 1:
            wanted = f"≥ open_seconds ({self.open_seconds})"
            _require(self.open_cap >= self.open_seconds, "open_cap", wanted, self.open_cap)
        _require(0 <= self.jitter <= 1, "jitter", "between 0 and 1", self.jitter)
        _require(
            1 <= self.half_open_calls <= 1000, "half_open_calls", "between 1 and 1000", self.half_open_calls
        )

    def _check_window(self) -> None:
        _require(1 <= self.window <= 100_000, "window", "between 1 and 100,000", self.window)
        _require(self.min_calls >= 1, "min_calls", "≥ 1", self.min_calls)
        if self.window_seconds is None:
            wanted = f"≤ window ({self.window}), else the breaker can never open"
            _require(self.min_calls <= self.window, "min_calls", wanted, self.min_calls)
        else:
            _require(_positive(self.window_seconds), "window_seconds", "finite and > 0", self.window_seconds)


def _positive(number: float) -> bool:
    return math.isfinite(number) and number > 0


def _require(fine: bool, name: str, wanted: str, got: object) -> None:
    if not fine:
        raise ValueError(f"{name} must be {wanted}, got {got}")


@dataclass(frozen=True, slots=True)
class BreakerSnapshot:
    """A breaker at one moment.

    Rates are percent, None while undefined. `since` is a reading of the breaker's own monotonic clock
    and means nothing to another process; the two `seconds_…` do. `seconds_not_closed` counts OPEN,
    HALF_OPEN and FORCED_OPEN without a break, and is 0 in the other states. `window_…` describe the
    calls remembered now, the four totals everything since the breaker was made: succeeded and failed
    are disjoint, slow is a part of both.
    """

    name: str
    state: State
    since: float
    seconds_in_state: float
    seconds_not_closed: float
    generation: int
    failure_rate: float | None
    slow_rate: float | None
    window_calls: int
    window_failures: int
    window_slow: int
    succeeded: int
    failed: int
    slow: int
    ignored: int
    not_permitted: int
    retry_after: float | None

    @property
    def calls(self) -> int:
        """All calls that have ended or were turned away; unchanged means that nobody asked, or that all hang."""
        return self.succeeded + self.failed + self.ignored + self.not_permitted
