"""An unsteady neighbour and a crowd of workers behind one chain: the stand of two experiments.

The neighbour is the sandbox gateway, a process of its own behind real sockets; the chain is the product's.
Every time is given in seconds of the story and multiplied by `pace`.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from resilience.breaker import BreakerPolicy
from resilience.bulkhead import BulkheadPolicy
from resilience.chain import Chain, ChainPolicy
from resilience.deadline import Deadline
from resilience.http import HttpPolicy, HttpSession
from resilience.ratelimit import LimiterPolicy
from resilience.retry import RetryPolicy
from sandbox.control import Started

WORKERS = 8
ATTEMPTS = 3
BACKOFF = 0.3
EVERY = 0.15
"""Seconds between two tasks."""
_CHARGE = {"amount": "1999", "currency": "eur", "confirm": "true", "payment_method": "pm_card_visa"}


class Downstream:
    """The neighbour as its callers know it. Thread-safe."""

    def __init__(self, gateway: Started, pace: float, seed: int = 1) -> None:
        self._gateway, self._pace, self._seed = gateway, pace, seed
        self._session = HttpSession(
            HttpPolicy(
                gateway.url,
                connect_timeout=1.0,
                read_timeout=2.0,
                call_timeout=2.0,
                pool_wait=1.0,
                headers={"Authorization": "Bearer sk_test_lab"},
            )
        )

    def fail(self) -> None:
        """Every call fails, after a while."""
        self._gateway.set_faults({"effect": {"status": 503, **self._latency()}})

    def recover(self) -> None:
        """Well again, but for 8 in a hundred calls."""
        failing = {"match": {"share": 0.08, "seed": self._seed}, "effect": {"status": 503, **self._latency()}}
        self._gateway.set_faults(failing, {"effect": self._latency()})

    def _latency(self) -> dict[str, float]:
        """40 to 240 ms."""
        return {"latency_ms": 140 * self._pace, "jitter_ms": 100 * self._pace}

    def call(self, deadline: Deadline) -> None:
        """One charge. Raises what the session raises."""
        self._session.request(
            "POST", "/v1/payment_intents", form=_CHARGE, deadline=deadline, idempotency_key=uuid.uuid4().hex
        )

    @property
    def arrivals(self) -> list[float]:
        """When each call reached the neighbour, in seconds of its own clock."""
        return [
            request["at_ms"] / 1000
            for request in self._gateway.ledger()["requests"]
            if request["method"] == "POST"
        ]


def chain(pace: float) -> Chain:
    """3 attempts, window 10 with at least 5, open for 4 s, 3 probes, 5 calls a second, 3 at a time."""
    return Chain(
        ChainPolicy(
            name="downstream",
            call_timeout=2.0,
            retry=RetryPolicy(
                attempts=ATTEMPTS,
                backoff=BACKOFF * pace,
                backoff_cap=2 * BACKOFF * pace,
                budget_ratio=1.0,
                budget_floor_per_second=1000,
            ),
            breaker=BreakerPolicy(
                window=10, min_calls=5, failure_rate=50, open_seconds=4 * pace, jitter=0, half_open_calls=3
            ),
            limiter=LimiterPolicy(limit=5, period=pace),
            bulkhead=BulkheadPolicy(max_concurrent=3),
        )
    )


def submit(task: Callable[[], None], count: int, pace: float, stop: threading.Event | None = None) -> None:
    """`count` tasks, one every 150 ms, to 8 workers; returns when the last one has ended."""
    begun = time.monotonic()
    ended = stop or threading.Event()
    with ThreadPoolExecutor(WORKERS) as pool:
        for number in range(count):
            if ended.wait(max(0.0, begun + number * EVERY * pace - time.monotonic())):
                return
            pool.submit(task)
