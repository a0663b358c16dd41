"""What is measured: ours, the floors, and every peer that is installed, all around the same no-op."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Any

from bench import floors
from resilience.breaker import BreakerPolicy, CircuitBreaker
from resilience.bulkhead import Bulkhead, BulkheadPolicy
from resilience.chain import Chain, ChainPolicy
from resilience.deadline import Deadline
from resilience.errors import BreakerOpen
from resilience.ratelimit import LimiterPolicy, SlidingLimiter
from resilience.retry import RetryPolicy

Call = Callable[[], object]
BIG = 10**9
FOREVER = 10**6


@dataclass(frozen=True)
class Subject:
    """`kind`: bare, chain, breaker (window and slow calls), open (a rejection), part. `role`: ours, floor, peer."""

    kind: str
    role: str
    name: str
    make: Callable[[], Call]


def noop() -> int:
    return 1


class Broken(OSError):
    pass


def _ours() -> list[Subject]:
    def chain() -> Call:
        policy = ChainPolicy(
            "bench",
            call_timeout=3.0,
            retry=RetryPolicy(attempts=3),
            breaker=BreakerPolicy(window=100, slow_call=2.0),
            limiter=LimiterPolicy(limit=2000, period=0.0005),  # more than can be made, so never reached
            bulkhead=BulkheadPolicy(64),
        )
        call, deadline = Chain(policy).call, Deadline(math.inf)

        def operation(left: Deadline) -> int:
            return 1

        return lambda: call(operation, deadline=deadline)

    def breaker() -> Call:
        call = CircuitBreaker(BreakerPolicy(window=100, slow_call=2.0)).call
        return lambda: call(noop)

    def opened() -> Call:
        breaker = CircuitBreaker(BreakerPolicy(open_seconds=FOREVER))
        for _ in range(10):
            breaker.acquire().failure()
        return refusing(lambda: breaker.call(noop), BreakerOpen)

    return [
        Subject("chain", "ours", "Holdfast, 4 layers and deadline", chain),
        Subject("breaker", "ours", "Holdfast, window and slow calls", breaker),
        Subject("open", "ours", "Holdfast", opened),
    ]


def _parts() -> list[Subject]:
    """What one good call through our chain is made of, piece by piece."""

    def breaker() -> Call:
        stage = CircuitBreaker(BreakerPolicy(window=100, slow_call=2.0)).stage
        return lambda: stage.success(stage.enter(1.0), 1.0)

    def limiter() -> Call:
        take, moments = SlidingLimiter(LimiterPolicy(2000, 0.5)).take, count().__next__
        return lambda: take(moments())

    def bulkhead() -> Call:
        places = Bulkhead(BulkheadPolicy(64))
        return lambda: places.give_back(places.pop())

    def clock() -> Call:
        return lambda: (monotonic(), monotonic())

    return [
        Subject("part", "ours", "deadline of the attempt", lambda: lambda: Deadline(1.0)),
        Subject("part", "ours", "breaker: lease, verdict, window", breaker),
        Subject("part", "ours", "exact sliding window", limiter),
        Subject("part", "ours", "place in the bulkhead", bulkhead),
        Subject("part", "ours", "clock, twice", clock),
    ]


def _floors() -> list[Subject]:
    free, locked = floors.FreeBreaker, floors.LockedBreaker

    def around(breaker: Any) -> Call:
        return lambda: breaker.call(noop)

    def opened() -> Call:
        breaker = floors.open_breaker()
        return refusing(lambda: breaker.call(noop), floors.Refused)

    return [
        Subject("bare", "floor", "the call itself", lambda: noop),
        Subject("chain", "floor", "4 layers without locks", lambda: floors.layered(noop, locks=False)),
        Subject("chain", "floor", "4 layers with locks", lambda: floors.layered(noop, locks=True)),
        Subject("breaker", "floor", "window and slow calls without lock", lambda: around(free())),
        Subject("breaker", "floor", "window and slow calls with lock", lambda: around(locked())),
        Subject("open", "floor", "clock, comparison, raise", opened),
    ]


def refusing(call: Call, refusal: type[BaseException]) -> Call:
    """`call` with its refusal caught, as every caller must."""

    def caught() -> object:
        try:
            call()
        except refusal:
            return None
        raise AssertionError("it was not refused")

    caught()
    return caught


def opened(protect: Callable[[Call], Call]) -> Call:
    """Trip a peer's breaker with failures, and measure its refusals."""
    healthy = False

    def operation() -> int:
        if not healthy:
            raise Broken
        return 1

    protected = protect(operation)
    for _ in range(200):
        try:
            protected()
        except Broken:
            continue
        except Exception as error:
            healthy = True
            return refusing(protected, type(error))
    raise AssertionError("it never opened")


def subjects() -> list[Subject]:
    """All of them; a peer that is not installed fails when made, and is then left out."""
    from bench.peers import PEERS

    return [
        *_floors(),
        *_ours(),
        *_parts(),
        *(Subject(kind, "peer", name, make) for kind, name, make in PEERS),
    ]
