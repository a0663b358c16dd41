"""A limit that counts by the calendar lets twice as much through where two of its periods meet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from resilience.errors import RateLimited
from resilience.ratelimit import LimiterPolicy, SlidingLimiter
from resilience.testing import ManualClock
from sandbox.lab.plot import bars
from sandbox.lab.report import Report, Row, Say

LIMIT, SMALL_LIMIT, SMALL_PERIOD = 50, 5, 0.1
REPLICAS = 10
_MICROSECOND = 1e-6
_START = 1000.0  # whole seconds, so that periods begin where one would look for them


class _Cycles:
    """The source's limiter: so many permissions each period, given out when the period begins."""

    def __init__(self, limit: int, period: float, clock: ManualClock) -> None:
        self._limit, self._period, self._now = limit, period, clock.monotonic
        self._cycle, self._used = -1, 0

    def acquire(self) -> None:
        """Raises RateLimited."""
        cycle = int(self._now() / self._period + 1e-9)
        if cycle != self._cycle:
            self._cycle, self._used = cycle, 0
        if self._used == self._limit:
            raise RateLimited("no permission is left in this period")
        self._used += 1


def _sliding(limit: int, period: float, clock: ManualClock) -> SlidingLimiter:
    return SlidingLimiter(LimiterPolicy(limit, period), clock=clock)


_Make = Callable[[ManualClock], Sequence[_Cycles | SlidingLimiter]]
_KINDS: dict[str, _Make] = {
    "cycles, 50 per second": lambda clock: [_Cycles(LIMIT, 1.0, clock)],
    "cycles, 5 per 100 ms": lambda clock: [_Cycles(SMALL_LIMIT, SMALL_PERIOD, clock)],
    "ours, 50 per second": lambda clock: [_sliding(LIMIT, 1.0, clock)],
    "ours, 5 per 100 ms": lambda clock: [_sliding(SMALL_LIMIT, SMALL_PERIOD, clock)],
    "ours, 5 per 100 ms, ten replicas": lambda clock: [
        _sliding(SMALL_LIMIT, SMALL_PERIOD, clock) for _ in range(REPLICAS)
    ],
}
_SOURCE = dict(zip(_KINDS, ("100", "10", "", "", "×10"), strict=True))
_WANTED = dict(
    zip(_KINDS, (2 * LIMIT, 2 * SMALL_LIMIT, LIMIT, SMALL_LIMIT, REPLICAS * SMALL_LIMIT), strict=True)
)


def run(say: Say) -> Report:
    """On a clock that is moved by hand: no machine is fast enough to be exact at an edge, and none need be."""
    edge = {name: _at_the_edge(make) for name, make in _KINDS.items()}
    alone = list(_KINDS)[:4]
    busiest = {name: _busiest_second(_KINDS[name]) for name in alone}
    say(f"calls within 2 ms: {', '.join(str(count) for count in edge.values())}")
    rows = [
        Row(
            f"{name}: calls within 2 ms",
            _SOURCE[name],
            str(count),
            str(_WANTED[name]),
            count == _WANTED[name],
        )
        for name, count in edge.items()
    ]
    for name, count in busiest.items():
        ours = name.startswith("ours")
        expected = f"at most {LIMIT}" if ours else ""
        rows.append(Row(f"{name}: most in any second", "", str(count), expected, not ours or count <= LIMIT))
    groups = [(name, {"calls": float(edge[name])}) for name in alone]
    return Report(
        "limiter-edge",
        "100 calls in 2 ms under an honest limit of 50 a second",
        tuple(rows),
        {"limiter-edge": bars("Calls let through in the 2 ms around the edge of a second", "calls", groups)},
        {"within_2_ms": edge, "busiest_second": busiest},
    )


def _at_the_edge(make: _Make) -> int:
    """Let through in the last and the first millisecond of two seconds, by callers that ask every microsecond."""
    clock = ManualClock(_START + 0.999)
    limiters = make(clock)
    let_through = 0
    for _ in range(2000):
        clock.advance(_MICROSECOND)
        let_through += sum(_asks(limiter) for limiter in limiters)
    return let_through


def _busiest_second(make: _Make) -> int:
    """The most calls in any stretch of a second. Callers come in bursts at the worst moments for each limiter:
    at the end of one second, and through all of the next."""
    clock = ManualClock(_START)
    limiters = make(clock)
    window: deque[float] = deque()
    most = 0
    for step in range(3000):
        clock.advance(0.001)
        if step < 990:
            continue
        for _ in range(12):
            for limiter in limiters:
                if _asks(limiter):
                    window.append(clock.monotonic())
        while window and window[0] <= clock.monotonic() - 1.0 + 1e-9:
            window.popleft()
        most = max(most, len(window))
    return most


def _asks(limiter: _Cycles | SlidingLimiter) -> bool:
    try:
        limiter.acquire()
    except RateLimited:
        return False
    return True
