"""Circuit breaker: stop calling a neighbour that fails, and find out carefully when it is back.

Modelled on resilience4j (states, windows, names), with generations, leased probes and time-driven transitions
that are true for whoever looks, without a timer thread.
"""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from resilience.breaker_policy import NOT_CLOSED, TRANSITIONS, BreakerPolicy, BreakerSnapshot, State, Trigger
from resilience.breaker_stages import DisabledStage, HalfOpenStage, OpenStage, Stage, WatchingStage
from resilience.clock import SYSTEM_CLOCK, Clock
from resilience.counter import Counter
from resilience.events import Event, EventKind, EventStream
from resilience.window import Counts

__all__ = ["BreakerPolicy", "BreakerSnapshot", "CircuitBreaker", "Permit", "State"]

P = ParamSpec("P")
T = TypeVar("T")


class CircuitBreaker:
    """One neighbour's breaker in one process. Thread-safe; no lock is held during calls or listeners.

    `call` runs a function, `protect` decorates one, `acquire` hands out a permit for everything else.
    """

    def __init__(
        self,
        policy: BreakerPolicy,
        *,
        name: str = "",
        clock: Clock = SYSTEM_CLOCK,
        events: EventStream | None = None,
        rand: Callable[[], float] = random.random,
    ) -> None:
        """`rand` gives numbers in [0, 1) for the jitter of the wait."""
        self.policy = policy
        self.name = name
        self.events = events if events is not None else EventStream()
        self.lock = threading.Lock()
        self.not_permitted = Counter()
        self._ignored = Counter()
        self._now = clock.monotonic
        self._rand = rand
        self._openings = 0
        self._earlier = (0, 0, 0)  # totals of the stages before the current one
        self._left_closed: float | None = None
        self.stage: Stage = WatchingStage(self, State.CLOSED, 0, self._now())

    # What callers use

    @property
    def state(self) -> State:
        """The state at this moment, waits and leases that have just ended taken into account."""
        return self.current(self._now()).state

    def call(self, operation: Callable[[], T]) -> T:
        """Run `operation` if the breaker lets it. Raises BreakerOpen, or what the operation raises."""
        now = self._now()
        stage = self.stage
        if now >= stage.due:
            stage = self._advance(now)
        if stage.refuses_all:
            raise stage.refusal(now)
        key = stage.enter(now)
        try:
            value = operation()
        except BaseException as error:
            stage.leave(key, error, self._now())
            raise
        stage.success(key, self._now())
        return value

    def protect(self, function: Callable[P, T]) -> Callable[P, T]:
        """Decorator form of `call`."""

        @functools.wraps(function)
        def protected(*args: P.args, **kwargs: P.kwargs) -> T:
            return self.call(functools.partial(function, *args, **kwargs))

        return protected

    def acquire(self) -> Permit:
        """A permit to make one call; also a context manager. Raises BreakerOpen."""
        now = self._now()
        stage = self.current(now)
        return Permit(stage, stage.enter(now), self._now)

    def snapshot(self) -> BreakerSnapshot:
        """Everything worth showing, at one moment. Cheap enough to be taken every second."""
        now = self._now()
        self.current(now)
        with self.lock:
            stage = self.stage
            counts = stage.counts(now)
            totals = [a + b for a, b in zip(self._earlier, stage.totals(), strict=True)]
            left = self._left_closed
        failure_rate, slow_rate = self._rates(counts)
        return BreakerSnapshot(
            name=self.name,
            state=stage.state,
            since=stage.since,
            seconds_in_state=max(0.0, now - stage.since),
            seconds_not_closed=0.0 if left is None else max(0.0, now - left),
            generation=stage.generation,
            failure_rate=failure_rate,
            slow_rate=slow_rate,
            window_calls=counts.total,
            window_failures=counts.failures,
            window_slow=counts.slow,
            succeeded=max(0, totals[0] - totals[1]),
            failed=totals[1],
            slow=totals[2],
            ignored=self._ignored.value,
            not_permitted=self.not_permitted.value,
            retry_after=stage.due - now if stage.state is State.OPEN else None,
        )

    def force_open(self) -> None:
        """Let nothing through until `reset`."""
        self._by_hand(Trigger.FORCE_OPEN)

    def disable(self) -> None:
        """Let everything through and remember nothing until `reset`."""
        self._by_hand(Trigger.DISABLE)

    def metrics_only(self) -> None:
        """Let everything through, but go on measuring, until `reset`."""
        self._by_hand(Trigger.METRICS_ONLY)

    def reset(self) -> None:
        """Back to CLOSED with an empty window, from any state."""
        self._by_hand(Trigger.RESET)

    # What chain and stages use

    def current(self, now: float) -> Stage:
        """The stage that is right at `now`."""
        stage = self.stage
        return stage if now < stage.due else self._advance(now)

    def judge(self, stage: WatchingStage, now: float) -> None:
        """Open if the rates of `stage` ask for it. Called without the lock."""
        detail = self._exceeded(stage.counts(now))
        if detail is None and stage.state is State.CLOSED:
            return
        with self.lock:
            events = self.judge_locked(stage, now)
        self.publish(events)

    def judge_locked(self, stage: WatchingStage, now: float) -> list[Event]:
        """`judge` for callers that hold the lock; the events are theirs to publish."""
        if self.stage is not stage:
            return []
        detail = self._exceeded(stage.counts(now))
        crossed = stage.first_report(detail is not None)
        if detail is None or not crossed:
            return []
        events = [Event(self.name, EventKind.THRESHOLD_EXCEEDED, now, detail)]
        if stage.state is State.CLOSED:
            events.append(self.move(Trigger.THRESHOLD, now))
        return events

    def move(self, trigger: Trigger, at: float) -> Event:
        """Make the transition that `trigger` asks for. Called with the lock held."""
        old = self.stage
        target = TRANSITIONS[old.state, trigger]
        noted = zip(self._earlier, old.totals(), strict=True)
        self._earlier = tuple(a + b for a, b in noted)  # type: ignore[assignment]
        if target in NOT_CLOSED:
            if old.state not in NOT_CLOSED:
                self._left_closed = at
        else:
            self._left_closed = None
            self._openings = 0
        self.stage = self._new_stage(target, old, at)
        return Event(self.name, EventKind.STATE_CHANGED, at, f"{old.state.name} to {target.name}")

    def note_ignored(self, error: BaseException, now: float) -> None:
        """Count an outcome that is neither failure nor success."""
        self._ignored.add()
        if self.events.listeners:
            self.events.publish(Event(self.name, EventKind.ERROR_IGNORED, now, type(error).__name__))

    def publish(self, events: list[Event]) -> None:
        """Tell the listeners. Called without the lock."""
        for event in events:
            self.events.publish(event)

    # Inside

    def _advance(self, now: float) -> Stage:
        while True:
            with self.lock:
                stage = self.stage
                if now < stage.due:
                    return stage
                events = stage.come_due(now)
            self.publish(events)

    def _by_hand(self, trigger: Trigger) -> None:
        now = self._now()
        self.current(now)
        with self.lock:
            event = self.move(trigger, now)
        self.events.publish(event)

    def _new_stage(self, target: State, old: Stage, at: float) -> Stage:
        generation = old.generation + 1
        if target in (State.CLOSED, State.METRICS_ONLY):
            return WatchingStage(self, target, generation, at)
        if target is State.OPEN:
            self._openings += 1
            return OpenStage(self, target, generation, at, wait=self._wait(), kept=old.counts(at))
        if target is State.FORCED_OPEN:
            return OpenStage(self, target, generation, at)
        if target is State.HALF_OPEN:
            return HalfOpenStage(self, generation, at)
        return DisabledStage(self, target, generation, at)

    def _wait(self) -> float:
        policy = self.policy
        wait = policy.open_seconds * policy.open_factor ** min(self._openings - 1, 100)
        if policy.open_factor > 1:
            wait = min(wait, policy.open_cap)
        return wait * (1 + policy.jitter * self._rand())

    def _rates(self, counts: Counts) -> tuple[float | None, float | None]:
        if counts.total < self.policy.min_calls:
            return None, None
        return 100 * counts.failures / counts.total, 100 * counts.slow / counts.total

    def _exceeded(self, counts: Counts) -> str | None:
        failure_rate, slow_rate = self._rates(counts)
        if failure_rate is not None and failure_rate >= self.policy.failure_rate:
            return f"failure_rate {failure_rate:.1f} %"
        if slow_rate is not None and slow_rate >= self.policy.slow_rate:
            return f"slow_rate {slow_rate:.1f} %"
        return None


class Permit:
    """Leave to make one call. Report once how it ended; anything after that, or too late, changes nothing.

    As a context manager it judges by the exception that leaves the block.
    """

    __slots__ = ("_key", "_now", "_stage")

    def __init__(self, stage: Stage, key: int, now: Callable[[], float]) -> None:
        self._stage = stage
        self._key = key
        self._now = now

    def success(self) -> None:
        """The neighbour did what it was asked."""
        self._stage.success(self._key, self._now())

    def failure(self) -> None:
        """The neighbour failed."""
        self._stage.failure(self._key, self._now())

    def ignore(self) -> None:
        """The outcome says nothing about the neighbour; the permit is given back."""
        self._stage.ignore(self._key)

    def __enter__(self) -> Permit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.success()
        else:
            self._stage.leave(self._key, error, self._now())
