"""From snapshots of one breaker to what the controller asks, on a manual clock."""

from __future__ import annotations

import pytest

from payments.replicas import Finding, Tracker
from resilience.breaker import BreakerPolicy, CircuitBreaker, State
from resilience.errors import BreakerOpen
from resilience.testing import ManualClock


class Process:
    """A breaker that is asked, and its tracker, one report a second."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        policy = BreakerPolicy(
            window=2, min_calls=2, failure_rate=60, open_seconds=30, jitter=0, half_open_calls=2
        )
        self.breaker = CircuitBreaker(policy, clock=self.clock)
        self.tracker = Tracker(after_open=60)
        self.report()

    def report(self) -> Finding:
        return self.tracker.note(self.breaker.snapshot(), self.clock.monotonic())

    def run(self, seconds: int, *, good: bool | None = None, every: int = 1) -> Finding:
        """So many seconds with a call every so often (none: `good` is None)."""
        for second in range(seconds):
            self.clock.advance(1)
            if good is not None and second % every == 0:
                self.call(good)
            finding = self.report()
        return finding

    def call(self, good: bool) -> None:
        try:
            with self.breaker.acquire() as permit:
                if not good:
                    permit.failure()
        except BreakerOpen:
            pass


@pytest.fixture
def process() -> Process:
    return Process()


def test_a_process_that_was_never_asked_has_no_opinion(process: Process) -> None:
    finding = process.run(5)
    assert (finding.asked, finding.failing, finding.healthy) == (None, None, None)


def test_failing_counts_from_the_opening_over_half_open_rounds(process: Process) -> None:
    finding = process.run(70, good=False)
    assert finding.failing == pytest.approx(68, abs=1.5)  # two calls were needed to open
    assert finding.asked == 0


def test_refused_calls_are_an_opinion_too(process: Process) -> None:
    process.run(2, good=False)
    assert process.breaker.state is State.OPEN
    assert process.run(10, good=False).asked == 0


def test_closing_ends_the_stretch_of_failing(process: Process) -> None:
    process.run(40, good=False)
    finding = process.run(60, good=True)
    assert process.breaker.state is State.CLOSED
    assert finding.failing is None


def test_healthy_counts_successes_of_a_closed_breaker_and_one_failure_ends_it(process: Process) -> None:
    assert process.run(20, good=True).healthy == pytest.approx(19, abs=1)
    process.run(1, good=False)
    assert process.run(1).healthy is None
    assert process.run(5, good=True).healthy == pytest.approx(4, abs=1)


def test_a_breaker_that_stood_half_open_all_night_begins_anew_with_the_first_failure(
    process: Process,
) -> None:
    process.run(40, good=False)
    finding = process.run(300)
    assert process.breaker.state is State.HALF_OPEN
    assert finding.failing is None
    assert process.run(1, good=False).failing == pytest.approx(1, abs=1)


def test_a_half_open_breaker_whose_probes_succeed_does_not_count_as_failing(process: Process) -> None:
    process.run(40, good=False)
    process.run(300)
    finding = process.run(1, good=True)
    assert process.breaker.state is State.HALF_OPEN
    assert (finding.failing, finding.asked) == (None, 0)


def test_a_breaker_opened_by_hand_fails_while_it_is_asked(process: Process) -> None:
    process.breaker.force_open()
    assert process.run(61, good=True).failing == pytest.approx(61, abs=1.5)
