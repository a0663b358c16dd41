"""The breaker against a naive model: every call in a list, every rate counted anew, time walked event by event."""

from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from resilience.breaker import BreakerPolicy, CircuitBreaker, State
from resilience.errors import BreakerOpen
from resilience.testing import ManualClock

LEASE = 12
WAIT = 20


@dataclass
class Call:
    began: int
    stay: int
    over: bool = False


class Model:
    """The semantics, written down as slowly and plainly as possible. Times are whole seconds."""

    def __init__(self, policy):
        self.policy = policy
        self.now = 0
        self.calls = []
        self.enter(State.CLOSED, 0)
        self.openings = 0
        self.stay = 0
        self.failed = self.succeeded = self.rejected = 0

    def enter(self, state, at):
        self.state = state
        self.since = at
        self.stay = getattr(self, "stay", 0) + 1
        self.results = []
        if state is State.OPEN:
            self.openings += 1
        elif state in (State.CLOSED, State.METRICS_ONLY, State.DISABLED):
            self.openings = 0

    def wait(self):
        return min(WAIT * self.policy.open_factor ** (self.openings - 1), self.policy.open_cap)

    def walk(self, until):
        while True:
            due = [(call.began + LEASE, call) for call in self.running()]
            if self.state is State.DISABLED:
                due = []
            if self.state is State.OPEN:
                due = [(self.since + self.wait(), None)]
            due = [item for item in due if item[0] <= until]
            if not due:
                break
            at, call = min(due, key=lambda item: item[0])
            if call is None:
                self.enter(State.HALF_OPEN, at)
            else:
                call.over = True
                self.result(failed=True, slow=True, at=at)
        self.now = until

    def running(self):
        return [call for call in self.calls if call.stay == self.stay and not call.over]

    def begin(self):
        if self.state in (State.OPEN, State.FORCED_OPEN):
            return None
        if (
            self.state is State.HALF_OPEN
            and len(self.running()) + len(self.results) >= self.policy.half_open_calls
        ):
            return None
        call = Call(self.now, self.stay)
        self.calls.append(call)
        return call

    def end(self, call, outcome):
        if call.over or call.stay != self.stay:
            return
        call.over = True
        if outcome != "ignored" and self.state is not State.DISABLED:
            self.result(outcome == "failure", self.now - call.began > self.policy.slow_call, self.now)

    def result(self, failed, slow, at):
        self.failed += failed
        self.succeeded += not failed
        self.results.append((failed, slow))
        if self.state is State.HALF_OPEN:
            if len(self.results) == self.policy.half_open_calls:
                self.enter(State.OPEN if self.bad(self.results) else State.CLOSED, at)
        else:
            window = self.results[-self.policy.window :]
            if len(window) >= self.policy.min_calls and self.bad(window) and self.state is State.CLOSED:
                self.enter(State.OPEN, at)

    def bad(self, results):
        failures = sum(failed for failed, _ in results) / len(results)
        slow = sum(slow for _, slow in results) / len(results)
        return failures >= self.policy.failure_rate / 100 or slow >= self.policy.slow_rate / 100


class BreakerMachine(RuleBasedStateMachine):
    @initialize(
        window=st.integers(2, 6),
        least=st.integers(1, 6),
        probes=st.integers(1, 3),
        factor=st.sampled_from([1.0, 2.0]),
    )
    def begin(self, window, least, probes, factor):
        policy = BreakerPolicy(
            window=window,
            min_calls=min(window, least),
            slow_call=3,
            slow_rate=75,
            open_seconds=WAIT,
            open_factor=factor,
            open_cap=50 if factor > 1 else 300,
            jitter=0,
            half_open_calls=probes,
            half_open_max_seconds=LEASE,
        )
        self.clock = ManualClock(start=0)
        self.breaker = CircuitBreaker(policy, clock=self.clock)
        self.model = Model(policy)
        self.open_calls = []

    @rule(times=st.integers(1, 4))
    def start(self, times):
        for _ in range(times):
            expected = self.model.begin()
            try:
                permit = self.breaker.acquire()
            except BreakerOpen:
                permit = None
                self.model.rejected += 1
            assert (permit is None) == (expected is None)
            if permit is not None:
                self.open_calls.append((permit, expected))

    @precondition(lambda self: self.open_calls)
    @rule(which=st.integers(0, 99), outcome=st.sampled_from(["success", "failure", "failure", "ignored"]))
    def end(self, which, outcome):
        permit, expected = self.open_calls.pop(which % len(self.open_calls))
        {"success": permit.success, "failure": permit.failure, "ignored": permit.ignore}[outcome]()
        self.model.end(expected, outcome)

    @rule(count=st.integers(1, 6), outcome=st.sampled_from(["success", "failure"]))
    def call_at_once(self, count, outcome):
        for _ in range(count):
            self.start(1)
            if self.open_calls and self.open_calls[-1][1] in self.model.running():
                self.end(len(self.open_calls) - 1, outcome)

    @rule(seconds=st.sampled_from([1, 2, 4, 11, 12, 19, 20, 21, 60]))
    def time_passes(self, seconds):
        self.clock.advance(seconds)
        self.model.walk(self.model.now + seconds)

    @rule(
        what=st.sampled_from(
            [
                ("reset", State.CLOSED),
                ("reset", State.CLOSED),
                ("force_open", State.FORCED_OPEN),
                ("metrics_only", State.METRICS_ONLY),
                ("disable", State.DISABLED),
            ]
        ),
        seldom=st.integers(0, 5),
    )
    def by_hand(self, what, seldom):
        if seldom:
            return
        getattr(self.breaker, what[0])()
        self.model.enter(what[1], self.model.now)

    @invariant()
    def both_agree(self):
        if not hasattr(self, "breaker"):
            return
        seen = self.breaker.snapshot()
        model = self.model
        assert seen.state is model.state
        assert seen.since == model.since
        assert (seen.failed, seen.succeeded, seen.not_permitted) == (
            model.failed,
            model.succeeded,
            model.rejected,
        )
        if model.state in (State.CLOSED, State.METRICS_ONLY):
            window = model.results[-model.policy.window :]
            assert seen.window_calls == len(window)
            assert seen.window_failures == sum(failed for failed, _ in window)
            assert seen.window_slow == sum(slow for _, slow in window)
        if model.state is State.HALF_OPEN:
            assert len(model.running()) + len(model.results) <= model.policy.half_open_calls


TestBreakerMachine = BreakerMachine.TestCase
TestBreakerMachine.settings = settings(
    max_examples=60, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
