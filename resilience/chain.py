"""Retry, circuit breaker, rate limiter, bulkhead and deadline around one call, in that order.

Every attempt passes all layers again. What our own layers refuse is never repeated and never counted
against the neighbour.
"""

from __future__ import annotations

import functools
import logging
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from resilience.breaker import BreakerPolicy, BreakerSnapshot, CircuitBreaker
from resilience.breaker_stages import Stage
from resilience.bulkhead import Bulkhead, BulkheadPolicy
from resilience.clock import SYSTEM_CLOCK, Clock
from resilience.counter import Counter
from resilience.deadline import Deadline, current_deadline, use_deadline
from resilience.errors import (
    Answered,
    BulkheadFull,
    ClientError,
    NotSent,
    OutOfTime,
    RateLimited,
    is_local_refusal,
)
from resilience.events import Event, EventKind, EventStream
from resilience.ratelimit import LimiterPolicy, SlidingLimiter
from resilience.retry import RetryBudget, RetryPolicy, may_repeat, pause_before

P = ParamSpec("P")
T = TypeVar("T")
_log = logging.getLogger("resilience")

_FAIR_PART = (
    0.5  # of call_timeout; an attempt that got less and ran out of it says nothing about the neighbour
)

_blank = Deadline.__new__

Observer = Callable[[str, str, float], None]
"""Called after every attempt that reached the operation: chain name, outcome ("success", "failure",
"ignored", "refused"), seconds taken. Runs in the caller's thread without any lock; what it raises is
logged."""


@dataclass(frozen=True)
class ChainPolicy:
    """Everything about one neighbour's chain. Times are seconds.

    call_timeout: bound of one attempt, handed to the operation as its deadline. minimum: an attempt does not
    start with less time than this left.
    """

    name: str
    call_timeout: float
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    limiter: LimiterPolicy | None = None
    bulkhead: BulkheadPolicy | None = None
    minimum: float = 0.005

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name must not be empty")
        if not (math.isfinite(self.call_timeout) and self.call_timeout > 0):
            raise ValueError(f"call_timeout must be a finite number of seconds > 0, got {self.call_timeout}")
        if not 0 <= self.minimum < self.call_timeout:
            raise ValueError(
                f"minimum must be ≥ 0 and below call_timeout ({self.call_timeout}), got {self.minimum}"
            )
        slow = self.breaker.slow_call
        if slow is not None and slow >= self.call_timeout:
            raise ValueError(
                f"breaker.slow_call must be below call_timeout ({self.call_timeout}), got {slow}: "
                "no call could ever be slow"
            )


@dataclass(frozen=True, slots=True)
class ChainSnapshot:
    """A chain's counters at one moment; all but the two `…_available` only ever grow.

    The first four are calls by end and by whether they were repeated (resilience4j's retry kinds). The
    `rejected_by_…` count every refusal of a layer, `refused` the calls whose caller was finally told
    "not sent".
    """

    name: str
    successful_without_retry: int
    successful_with_retry: int
    failed_with_retry: int
    failed_without_retry: int
    repeats: int
    retry_budget_empty: int
    refused: int
    rejected_by_breaker: int
    rejected_by_limiter: int
    rejected_by_bulkhead: int
    rejected_for_time: int
    bulkhead_available: int | None
    limiter_available: int | None
    breaker: BreakerSnapshot


class Chain:
    """The protected way to one neighbour; one per neighbour and process. Thread-safe.

    Deadlines passed in must count on the chain's own clock.
    """

    def __init__(
        self,
        policy: ChainPolicy,
        *,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer | None = None,
        rand: Callable[[], float] = random.random,
    ) -> None:
        """`rand` gives numbers in [0, 1), for jitter."""
        self.policy = policy
        self.name = policy.name
        self.events = EventStream()
        self.breaker = CircuitBreaker(
            policy.breaker, name=self.name, clock=clock, events=self.events, rand=rand
        )
        self.limiter = SlidingLimiter(policy.limiter, name=self.name, clock=clock) if policy.limiter else None
        self.bulkhead = Bulkhead(policy.bulkhead, name=self.name) if policy.bulkhead else None
        self._observer = observer
        self._rand = rand
        self._clock = clock
        self._now = clock.monotonic
        self._call_timeout = policy.call_timeout
        self._minimum = policy.minimum
        self._budget = RetryBudget(policy.retry, self._now())
        self._succeeded_at_once = Counter()
        self._failed_at_first = Counter()  # first attempts only: with those that succeeded, all there were
        self._succeeded_later = Counter()
        self._failed_later = Counter()
        self._failed_at_once = Counter()
        self._repeats = Counter()
        self._refused = Counter()
        self._out_of_time = Counter()

    # What callers use

    def call(self, operation: Callable[[Deadline], T], *, deadline: Deadline, repeatable: bool = False) -> T:
        """Run `operation` with the deadline of its attempt and return what it returns.

        `repeatable`: doing it twice is doing it once (a read, or a write with an idempotency key). Raises
        BreakerOpen, RateLimited, BulkheadFull or OutOfTime from the layers, else what the last attempt
        raised.
        """
        try:
            value = self._attempt(operation, deadline)
        except BaseException as error:
            pause = self._pause_after(error, 1, deadline, repeatable)
            if pause is None:
                self._failed_at_once.add()
                self._note_refusal(error)
                raise
        else:
            self._succeeded_at_once.add()
            return value
        return self._repeat(operation, deadline, repeatable, pause)

    def protect(self, *, repeatable: bool = False) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Decorator: every call of the function goes through the chain.

        Its deadline is the current one (see `use_deadline`), else one `call_timeout` per allowed
        attempt. Inside, `current_deadline()` is the attempt's.
        """

        def decorate(function: Callable[P, T]) -> Callable[P, T]:
            @functools.wraps(function)
            def protected(*args: P.args, **kwargs: P.kwargs) -> T:
                def operation(attempt: Deadline) -> T:
                    with use_deadline(attempt):
                        return function(*args, **kwargs)

                return self.call(operation, deadline=self._default_deadline(), repeatable=repeatable)

            return protected

        return decorate

    @contextmanager
    def attempt(self, *, deadline: Deadline | None = None) -> Iterator[Deadline]:
        """Context manager: the block is one attempt, without repeats (a block cannot be run twice).

        Gives the attempt's deadline, which is also the current one inside. Raises as `call` does.
        """
        now = self._now()
        whole = deadline or self._default_deadline()
        own = Deadline(min(now + self._call_timeout, whole.end), self._clock)
        try:
            if own.end - now < self._minimum:
                raise self._no_time(now)
            with self.breaker.acquire():
                if self.limiter is not None:
                    self.limiter.acquire()
                with self.bulkhead.place() if self.bulkhead else nullcontext(), use_deadline(own):
                    yield own
        except BaseException as error:
            self._failed_at_once.add()
            self._note_refusal(error)
            self._note_failure(error, self._now(), self._now() - now)
            raise
        self._succeeded_at_once.add()
        if self._observer is not None:
            self._observe("success", self._now() - now)

    def snapshot(self) -> ChainSnapshot:
        """All counters and the breaker, at one moment."""
        return ChainSnapshot(
            name=self.name,
            successful_without_retry=self._succeeded_at_once.value,
            successful_with_retry=self._succeeded_later.value,
            failed_with_retry=self._failed_later.value,
            failed_without_retry=self._failed_at_once.value,
            repeats=self._repeats.value,
            retry_budget_empty=self._budget.refused.value,
            refused=self._refused.value,
            rejected_by_breaker=self.breaker.not_permitted.value,
            rejected_by_limiter=self.limiter.rejected.value if self.limiter else 0,
            rejected_by_bulkhead=self.bulkhead.rejected.value if self.bulkhead else 0,
            rejected_for_time=self._out_of_time.value,
            bulkhead_available=self.bulkhead.available if self.bulkhead else None,
            limiter_available=self.limiter.available() if self.limiter else None,
            breaker=self.breaker.snapshot(),
        )

    # One attempt

    def _attempt(self, operation: Callable[[Deadline], T], deadline: Deadline) -> T:
        now = self._now()
        end = now + self._call_timeout
        if deadline.end < end:
            end = deadline.end
            if end - now < self._minimum:
                raise self._no_time(now)
        breaker = self.breaker
        stage = breaker.stage
        if now >= stage.due:
            stage = breaker.current(now)
        if stage.refuses_all:
            raise stage.refusal(now)
        key = stage.enter(now)
        limiter, bulkhead = self.limiter, self.bulkhead
        own = _blank(Deadline)  # past the constructor, which would be a tenth of the whole chain's cost
        own.end, own.clock = end, self._clock
        try:
            if limiter is not None:
                limiter.take(now)
            if bulkhead is None:
                value = operation(own)
            else:
                try:
                    place = bulkhead.pop()
                except IndexError:
                    raise bulkhead.refusal() from None
                try:
                    value = operation(own)
                finally:
                    bulkhead.give_back(place)
        except BaseException as error:
            self._leave(stage, key, error, now, end)
            raise
        finished = self._now()
        stage.success(key, finished)
        if self._observer is not None:
            self._observe("success", finished - now)
        return value

    # Repeats

    def _repeat(
        self, operation: Callable[[Deadline], T], deadline: Deadline, repeatable: bool, pause: float
    ) -> T:
        attempt = 2
        while True:
            self._clock.sleep(pause)
            self._repeats.add()
            try:
                value = self._attempt(operation, deadline)
            except BaseException as error:
                next_pause = self._pause_after(error, attempt, deadline, repeatable)
                if next_pause is None:
                    self._failed_later.add()
                    self._note_refusal(error)
                    raise
                pause = next_pause
                attempt += 1
            else:
                self._succeeded_later.add()
                return value

    def _pause_after(
        self, error: BaseException, attempt: int, deadline: Deadline, repeatable: bool
    ) -> float | None:
        """Seconds to wait before the next attempt, or None when there shall be none."""
        if attempt == 1 and not is_local_refusal(error):
            self._failed_at_first.add()
        policy = self.policy.retry
        if attempt >= policy.attempts or not may_repeat(error, repeatable):
            return None
        pause = pause_before(attempt, policy, getattr(error, "retry_after", None), self._rand())
        now = self._now()
        if deadline.end - now - pause < self._minimum:
            return None
        first_attempts = self._succeeded_at_once.value + self._failed_at_first.value
        if not self._budget.spend(first_attempts, now):
            self._tell(EventKind.RETRY_BUDGET_EMPTY, now)
            return None
        self._tell(EventKind.RETRY, now, f"attempt {attempt + 1} after {pause:.3f} s")
        return pause

    # Bookkeeping

    def _default_deadline(self) -> Deadline:
        current = current_deadline()
        if current is not None:
            return current
        return Deadline(self._now() + self._call_timeout * self.policy.retry.attempts, self._clock)

    def _no_time(self, now: float) -> OutOfTime:
        self._out_of_time.add()
        self._tell(EventKind.OUT_OF_TIME, now)
        return OutOfTime(f"{self.name}: too little time left to begin")

    def _note_refusal(self, error: BaseException) -> None:
        if isinstance(error, NotSent):
            self._refused.add()

    def _leave(self, stage: Stage, key: int, error: BaseException, started: float, end: float) -> None:
        finished = self._now()
        cut_short = end - started < _FAIR_PART * self._call_timeout
        if cut_short and finished >= end and isinstance(error, Exception) and not isinstance(error, Answered):
            # It ran out of a time that no neighbour could be blamed for not keeping: a stranger's tiny deadline
            # must not open the breaker for everybody.
            stage.ignore(key)
        else:
            stage.leave(key, error, finished)
        self._note_failure(error, finished, finished - started)

    def _note_failure(self, error: BaseException, now: float, took: float) -> None:
        if isinstance(error, RateLimited):
            self._tell(EventKind.RATE_LIMITED, now)
        elif isinstance(error, BulkheadFull):
            self._tell(EventKind.BULKHEAD_REJECTED, now)
        elif self._observer is not None:
            if is_local_refusal(error):
                self._observe("refused", took)
            elif isinstance(error, ClientError) or not isinstance(error, Exception):
                self._observe("ignored", took)
            else:
                self._observe("failure", took)

    def _tell(self, kind: EventKind, now: float, detail: str = "") -> None:
        if self.events.listeners:
            self.events.publish(Event(self.name, kind, now, detail))

    def _observe(self, outcome: str, took: float) -> None:
        if self._observer is None:
            return
        try:
            self._observer(self.name, outcome, took)
        except Exception:
            _log.exception("the observer of %s failed", self.name)
