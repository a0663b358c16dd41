"""The web's only use of Valkey, which may be away at any time: counting together what each process also counts alone.

Every call goes through a chain of its own (one repeat with jitter, breaker, bulkhead), whose figures are the client's
metrics; a pool that waits briefly and timeouts out of the own part of the response budget bound what it may cost. After
a few failures nobody waits at all until a probe finds Valkey back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from config.environment import HoldfastSettings
from resilience.breaker import BreakerPolicy
from resilience.bulkhead import BulkheadPolicy
from resilience.chain import Chain, ChainPolicy, Observer
from resilience.counter import Counter
from resilience.deadline import Deadline, own_deadline
from resilience.errors import OutcomeUnknown, ResilienceError
from resilience.retry import RetryPolicy

_OPEN_SECONDS = 2.0


class Valkey:
    """A client for one process. Thread-safe; make it after the fork."""

    def __init__(self, url: str, *, budget_ms: int, most: int, observer: Observer | None = None) -> None:
        """`budget_ms`: what one call may cost, repeat and all. `most`: connections, and calls at a time."""
        self._budget_ms = budget_ms
        step = budget_ms / 1000 / 4  # a wait and two tries, or a connection and two tries, fit with a pause
        self.connections_made = Counter()
        self._client = redis.Redis(
            connection_pool=redis.BlockingConnectionPool.from_url(
                url,
                max_connections=most,
                timeout=step,
                socket_timeout=step,
                socket_connect_timeout=step,
                retry=Retry(NoBackoff(), 0),  # the chain repeats, within its budget
                redis_connect_func=self._connected,
            )
        )
        self.chain = Chain(
            ChainPolicy(
                name="valkey",
                call_timeout=budget_ms / 1000,
                retry=RetryPolicy(attempts=2, backoff=step / 2, backoff_cap=step / 2),
                breaker=BreakerPolicy(window=10, min_calls=4, open_seconds=_OPEN_SECONDS, half_open_calls=1),
                bulkhead=BulkheadPolicy(max_concurrent=most),
            ),
            observer=observer,
        )

    def count(self, key: str, seconds: int) -> int | None:
        """One more under `key` in a window of `seconds`: how many now, or None when nobody can tell in time."""

        def add() -> int:
            pipe = self._client.pipeline(transaction=True)
            pipe.incr(key)
            pipe.expire(key, seconds, nx=True)
            return int(pipe.execute()[0])

        return self._ask(add)

    def _ask(self, command: Callable[[], int]) -> int | None:
        def attempt(deadline: Deadline) -> int:
            try:
                return command()
            except (redis.RedisError, OSError) as error:
                failure = type(error).__name__
            raise OutcomeUnknown(f"valkey: {failure}", phase="headers")

        try:
            # Counting one too many does no harm.
            return self.chain.call(attempt, deadline=own_deadline(self._budget_ms), repeatable=True)
        except ResilienceError:
            return None

    def _connected(self, connection: Any) -> None:
        self.connections_made.add()
        connection.on_connect()


_built: list[Valkey] = []


def build(config: HoldfastSettings, observer: Observer | None = None) -> Valkey:
    """This process's client, made at the first call."""
    if not _built:
        threads = config.web_threads + config.spare_threads
        budget_ms = max(20, config.own_work_ms)
        _built.append(Valkey(settings.CACHE_URL, budget_ms=budget_ms, most=threads, observer=observer))
    return _built[0]


def built() -> Valkey | None:
    """The client, if this process has one: for those who only look."""
    return _built[0] if _built else None
