"""The circuit breaker's states at work: one object for each stay in a state.

A call belongs to the stage that let it in and reports to it. Once the breaker has moved on, that stage is no
longer the current one, so results of an earlier generation change nothing, without any comparison of numbers.
Each stage knows when something is `due` by itself (a wait that ends, a lease that runs out); whoever
looks at the breaker at or after that moment carries it out first.
"""

from __future__ import annotations

import math
from itertools import count
from typing import TYPE_CHECKING

from resilience.breaker_policy import State, Trigger
from resilience.counter import Counter
from resilience.errors import BreakerOpen, ClientError, is_local_refusal
from resilience.events import Event, EventKind
from resilience.window import FAILED, SLOW, Counts, CountWindow, TimeWindow, Window

if TYPE_CHECKING:
    from resilience.breaker import CircuitBreaker

_NOTHING = Counts(0, 0, 0)


class Stage:
    """What all stages have in common.

    `due`: monotonic seconds; `generation`: counts the stages of a breaker; `refuses_all`: nobody may enter.
    """

    __slots__ = ("breaker", "due", "generation", "refuses_all", "since", "state")

    def __init__(self, breaker: CircuitBreaker, state: State, generation: int, since: float) -> None:
        self.breaker = breaker
        self.state = state
        self.generation = generation
        self.since = since
        self.due = math.inf
        self.refuses_all = False

    def enter(self, now: float) -> int:
        """Let a call in and return its key, or raise BreakerOpen."""
        raise NotImplementedError

    def refusal(self, now: float) -> BreakerOpen:
        """The refusal that `enter` would raise; only for stages with `refuses_all`."""
        raise NotImplementedError

    def success(self, key: int, now: float) -> None:
        """The call ended well at `now`."""

    def failure(self, key: int, now: float) -> None:
        """The call ended badly at `now`."""

    def ignore(self, key: int) -> None:
        """The call ended in a way that says nothing about the neighbour."""

    def refuse(self, key: int, now: float) -> None:
        """The call was stopped by one of our own layers further in."""
        self.ignore(key)

    def leave(self, key: int, error: BaseException, now: float) -> None:
        """The call ended with `error`: find out what that means and note it."""
        if is_local_refusal(error):
            self.refuse(key, now)
        elif isinstance(error, ClientError) or not isinstance(error, Exception):
            # A real answer, or a stop from outside (KeyboardInterrupt, SystemExit): not the neighbour's
            # doing.
            self.ignore(key)
            if self.breaker.stage is self:
                self.breaker.note_ignored(error, now)
        else:
            self.failure(key, now)

    def come_due(self, now: float) -> list[Event]:
        """Carry out what is due at `now`. Called with the breaker's lock held."""
        return []

    def counts(self, now: float) -> Counts:
        """What this stage remembers."""
        return _NOTHING

    def totals(self) -> tuple[int, int, int]:
        """Results noted by this stage: all, failed, slow."""
        return 0, 0, 0


class WatchingStage(Stage):
    """CLOSED and METRICS_ONLY: everybody may pass, every result is remembered.

    Free of locks: a dict entry for each running call (set and popped by single C calls) holds its
    start, makes its result count exactly once, and lets a call that never ends be noticed.
    """

    __slots__ = ("_failed", "_next_key", "_reported", "_running", "_slow_after", "_slow_seen", "window")

    def __init__(self, breaker: CircuitBreaker, state: State, generation: int, since: float) -> None:
        super().__init__(breaker, state, generation, since)
        policy = breaker.policy
        self.window: Window = (
            CountWindow(policy.window, policy.min_calls)
            if policy.window_seconds is None
            else TimeWindow(policy.window_seconds)
        )
        self._slow_after = math.inf if policy.slow_call is None else policy.slow_call
        self._running: dict[int, float] = {}
        self._next_key = count().__next__
        self._failed = Counter()
        self._slow_seen = Counter()
        self._reported = False
        self.due = since + policy.half_open_max_seconds

    def enter(self, now: float) -> int:
        key = self._next_key()
        self._running[key] = now
        return key

    def success(self, key: int, now: float) -> None:
        started = self._running.pop(key, None)
        if started is None:
            return  # its lease ran out before: already counted
        if now - started > self._slow_after:
            self._slow_seen.add()
            if self.window.add(SLOW, now):
                self.breaker.judge(self, now)
        elif self.window.add_good(now):
            self.breaker.judge(self, now)

    def failure(self, key: int, now: float) -> None:
        started = self._running.pop(key, None)
        if started is not None:
            self._remember_failure(now - started > self._slow_after, now)
            self.breaker.judge(self, now)

    def ignore(self, key: int) -> None:
        self._running.pop(key, None)

    def refuse(self, key: int, now: float) -> None:
        if self.breaker.policy.count_refusals:
            self.failure(key, now)
        else:
            self.ignore(key)

    def _remember_failure(self, slow: bool, now: float) -> None:
        self.window.add(FAILED | SLOW if slow else FAILED, now)
        self._failed.add()
        if slow:
            self._slow_seen.add()

    def come_due(self, now: float) -> list[Event]:
        """Count every call whose lease has run out as slow and failed, at the moment it ran out."""
        lease = self.breaker.policy.half_open_max_seconds
        running = sorted(self._running.copy().items(), key=lambda item: item[1])
        events: list[Event] = []
        for key, started in running:
            if started + lease > now:
                self.due = started + lease
                return events
            if self._running.pop(key, None) is None:
                continue  # it ended this very moment
            ended = started + lease
            self._remember_failure(slow=True, now=ended)
            events.append(Event(self.breaker.name, EventKind.LEASE_EXPIRED, ended))
            events += self.breaker.judge_locked(self, ended)
            if self.breaker.stage is not self:
                return events
        # Any call that begins from now on has at least a whole lease.
        self.due = now + lease
        return events

    def first_report(self, over: bool) -> bool:
        """True once each time the threshold is crossed upwards, so that METRICS_ONLY reports it once."""
        crossed = over and not self._reported
        self._reported = over
        return crossed

    def counts(self, now: float) -> Counts:
        return self.window.counts(now)

    def totals(self) -> tuple[int, int, int]:
        return self.window.recorded, self._failed.value, self._slow_seen.value


class OpenStage(Stage):
    """OPEN and FORCED_OPEN: nobody passes, and finding that out costs next to nothing."""

    __slots__ = ("_ends", "_events", "_kept", "_message", "_refused")

    def __init__(
        self,
        breaker: CircuitBreaker,
        state: State,
        generation: int,
        since: float,
        *,
        wait: float = math.inf,
        kept: Counts = _NOTHING,
    ) -> None:
        super().__init__(breaker, state, generation, since)
        self.due = since + wait
        self.refuses_all = True
        self._ends = wait < math.inf
        self._events = breaker.events
        self._kept = kept  # what made the breaker open, to be shown
        self._refused = breaker.not_permitted.add
        self._message = f"{breaker.name}: circuit breaker is {state.value.replace('_', ' ')}"

    def enter(self, now: float) -> int:
        raise self.refusal(now)

    def refusal(self, now: float) -> BreakerOpen:
        """Count a refusal and return it. Apart from `enter` to spare the hot paths a second traceback entry."""
        self._refused()
        if self._events.listeners:
            self._events.publish(Event(self.breaker.name, EventKind.BREAKER_REJECTED, now))
        # Past the Python-level constructor, which would cost as much as all the rest of a rejection.
        return _new_exception(BreakerOpen, self._message, self.due - now if self._ends else None)

    def come_due(self, now: float) -> list[Event]:
        return [self.breaker.move(Trigger.WAIT_OVER, self.due)]

    def counts(self, now: float) -> Counts:
        return self._kept


_new_exception = BreakerOpen.__new__


class HalfOpenStage(Stage):
    """HALF_OPEN: a few probes pass, each with a lease; as many verdicts decide.

    Verdicts and running probes together never exceed `half_open_calls`. Works under the breaker's lock: there
    are only a handful of calls to lock for, and the rest is turned away.
    """

    __slots__ = ("_failed", "_keys", "_slow", "_started", "_verdicts")

    def __init__(self, breaker: CircuitBreaker, generation: int, since: float) -> None:
        super().__init__(breaker, State.HALF_OPEN, generation, since)
        self._keys = count()
        self._started: dict[int, float] = {}
        self._verdicts = self._failed = self._slow = 0

    def enter(self, now: float) -> int:
        breaker = self.breaker
        with breaker.lock:
            if len(self._started) + self._verdicts < breaker.policy.half_open_calls:
                key = next(self._keys)
                self._started[key] = now
                self._set_due()
                return key
        breaker.not_permitted.add()
        breaker.events.publish(Event(breaker.name, EventKind.BREAKER_REJECTED, now))
        raise BreakerOpen(f"{breaker.name}: circuit breaker is half open and its probes are under way")

    def success(self, key: int, now: float) -> None:
        self._settle(key, now, failed=False)

    def failure(self, key: int, now: float) -> None:
        self._settle(key, now, failed=True)

    def ignore(self, key: int) -> None:
        with self.breaker.lock:
            self._started.pop(key, None)
            self._set_due()

    def _settle(self, key: int, now: float, failed: bool) -> None:
        breaker = self.breaker
        with breaker.lock:
            if breaker.stage is not self:
                return
            started = self._started.pop(key, None)
            if started is None:
                return
            events = self._verdict(failed, now - started, now)
            self._set_due()
        breaker.publish(events)

    def _verdict(self, failed: bool, took: float, now: float) -> list[Event]:
        policy = self.breaker.policy
        self._verdicts += 1
        self._failed += failed
        self._slow += policy.slow_call is not None and took > policy.slow_call
        if self._verdicts < policy.half_open_calls:
            return []
        bad = (
            100 * self._failed >= policy.failure_rate * self._verdicts
            or 100 * self._slow >= policy.slow_rate * self._verdicts
        )
        return [self.breaker.move(Trigger.PROBES_BAD if bad else Trigger.PROBES_GOOD, now)]

    def come_due(self, now: float) -> list[Event]:
        """Count each probe whose lease has run out as failed, at the moment it ran out."""
        breaker = self.breaker
        lease = breaker.policy.half_open_max_seconds
        events: list[Event] = []
        for key, started in sorted(self._started.items(), key=lambda item: item[1]):
            if started + lease <= now and breaker.stage is self:
                del self._started[key]
                events.append(Event(breaker.name, EventKind.LEASE_EXPIRED, started + lease))
                events += self._verdict(failed=True, took=lease, now=started + lease)
        self._set_due()
        return events

    def _set_due(self) -> None:
        lease = self.breaker.policy.half_open_max_seconds
        self.due = min(self._started.values(), default=math.inf) + lease

    def counts(self, now: float) -> Counts:
        return Counts(self._verdicts, self._failed, self._slow)

    def totals(self) -> tuple[int, int, int]:
        return self._verdicts, self._failed, self._slow


class DisabledStage(Stage):
    """DISABLED: everybody passes, nothing is remembered."""

    __slots__ = ()

    def enter(self, now: float) -> int:
        return 0

    def leave(self, key: int, error: BaseException, now: float) -> None:
        return
