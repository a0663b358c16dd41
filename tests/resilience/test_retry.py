"""Semantics 8 to 12: what is repeated, after which pause, how often in all, and how it is counted."""

import statistics

import pytest

from resilience.bulkhead import BulkheadPolicy
from resilience.chain import BreakerPolicy, Chain, ChainPolicy
from resilience.deadline import Deadline
from resilience.errors import (
    BadAnswer,
    BulkheadFull,
    ClientError,
    ConnectFailed,
    OutcomeUnknown,
    PoolTimeout,
    ServerError,
)
from resilience.events import EventKind
from resilience.retry import RetryBudget, RetryPolicy, pause_before
from resilience.testing import ManualClock

GENEROUS = RetryPolicy(
    attempts=3, backoff=0.1, backoff_cap=1.0, budget_ratio=1.0, budget_floor_per_second=100
)


class Script:
    """An operation that raises or returns, in turn, what it was given; afterwards "ok"."""

    def __init__(self, *turns):
        self.turns = list(turns)
        self.calls = 0

    def __call__(self, deadline):
        self.calls += 1
        turn = self.turns.pop(0) if self.turns else "ok"
        if isinstance(turn, BaseException):
            raise turn
        return turn


@pytest.fixture
def clock():
    return ManualClock()


def chain_with(clock, retry=GENEROUS, rand=lambda: 0.5, **kwargs):
    policy = ChainPolicy(
        "catalog", 1.0, retry=retry, breaker=BreakerPolicy(window=100, min_calls=100), **kwargs
    )
    return Chain(policy, clock=clock, rand=rand)


def soon(clock, ms=10_000):
    return Deadline.after_ms(ms, clock=clock)


def test_attempts_includes_the_first(clock):
    operation = Script(*[OutcomeUnknown()] * 9)
    with pytest.raises(OutcomeUnknown):
        chain_with(clock).call(operation, deadline=soon(clock), repeatable=True)
    assert operation.calls == 3


def test_the_pause_is_drawn_below_a_doubling_ceiling():
    assert [pause_before(n, GENEROUS, None, 0.999999) for n in (1, 2, 3)] == pytest.approx(
        [0.1, 0.2, 0.4], rel=1e-3
    )
    assert pause_before(1, GENEROUS, None, 0.0) == 0.0


def test_the_cap_applies_before_the_jitter_so_that_capped_waits_still_differ():
    waits = [pause_before(9, GENEROUS, None, place / 100) for place in range(100)]
    assert max(waits) <= 1.0
    assert statistics.pstdev(waits) > 0.25


def test_no_pause_and_no_attempt_that_does_not_fit_the_remaining_deadline(clock):
    operation = Script(OutcomeUnknown())
    with pytest.raises(OutcomeUnknown):
        chain_with(clock).call(
            operation, deadline=soon(clock, 54), repeatable=True
        )  # pause 50 ms, minimum 5 ms
    assert (operation.calls, clock.slept) == (1, [])


def test_the_attempt_after_a_pause_gets_what_is_left_and_not_more(clock):
    given = []

    def operation(deadline):
        given.append(deadline.remaining())
        if len(given) == 1:
            clock.advance(0.3)
            raise OutcomeUnknown
        return "ok"

    chain_with(clock).call(operation, deadline=soon(clock, 500), repeatable=True)
    assert given == pytest.approx([0.5, 0.15])  # 500 - 300 - a pause of 50


@pytest.mark.parametrize(
    "error", [OutcomeUnknown(), BadAnswer(status=200), ServerError(status=503), OSError()]
)
def test_an_unknown_outcome_is_repeated_only_if_the_call_is_repeatable(clock, error):
    once, twice = Script(error), Script(error)
    with pytest.raises(type(error)):
        chain_with(clock).call(once, deadline=soon(clock))
    assert chain_with(clock).call(twice, deadline=soon(clock), repeatable=True) == "ok"
    assert (once.calls, twice.calls) == (1, 2)


def test_a_failed_connection_is_repeated_whatever_the_call_is(clock):
    operation = Script(ConnectFailed())
    assert chain_with(clock).call(operation, deadline=soon(clock)) == "ok"
    assert operation.calls == 2


@pytest.mark.parametrize(
    "error", [ClientError(status=404), ClientError(status=402), PoolTimeout(), KeyError()]
)
def test_answers_own_refusals_and_mistakes_are_never_repeated(clock, error):
    operation = Script(error)
    with pytest.raises(type(error)):
        chain_with(clock).call(operation, deadline=soon(clock), repeatable=True)
    assert operation.calls == 1


def test_an_open_breaker_is_never_asked_again(clock):
    chain = chain_with(clock)
    chain.breaker.force_open()
    operation = Script()
    with pytest.raises(Exception, match="forced open"):
        chain.call(operation, deadline=soon(clock), repeatable=True)
    assert (operation.calls, chain.snapshot().rejected_by_breaker) == (0, 1)


@pytest.mark.parametrize(("asked", "waited"), [(0.3, 0.3), (0.0, 0.05), (5000.0, 1.0), (None, 0.05)])
def test_retry_after_lengthens_the_pause_up_to_the_cap(clock, asked, waited):
    operation = Script(ServerError(status=503, retry_after=asked))
    chain_with(clock).call(operation, deadline=soon(clock), repeatable=True)
    assert clock.slept == pytest.approx([waited])


def test_retry_after_is_never_slept_beyond_the_deadline(clock):
    operation = Script(ServerError(status=503, retry_after=0.6))
    with pytest.raises(ServerError):
        chain_with(clock).call(operation, deadline=soon(clock, 500), repeatable=True)
    assert clock.slept == []


def test_repeats_stay_below_a_tenth_of_first_attempts_plus_the_floor(clock):
    chain = chain_with(clock, RetryPolicy(attempts=2, budget_ratio=0.1, budget_floor_per_second=1.0))
    hits = 0

    def down(deadline):
        nonlocal hits
        hits += 1
        raise ServerError(status=503)

    for _ in range(90):
        with pytest.raises(ServerError):
            chain.call(down, deadline=soon(clock), repeatable=True)
    seconds = sum(clock.slept)
    assert hits - 90 == chain.snapshot().repeats
    assert 1 <= hits - 90 <= 0.1 * 90 + 1 + seconds
    assert chain.snapshot().retry_budget_empty == 180 - hits


def test_an_empty_retry_budget_means_no_repeats_and_is_counted_and_told(clock):
    chain = chain_with(clock, RetryPolicy(attempts=2, budget_ratio=0, budget_floor_per_second=0))
    events = []
    chain.events.subscribe(events.append)
    operation = Script(ConnectFailed())
    with pytest.raises(ConnectFailed):
        chain.call(operation, deadline=soon(clock))
    assert (operation.calls, chain.snapshot().retry_budget_empty) == (1, 1)
    assert [event.kind for event in events] == [EventKind.RETRY_BUDGET_EMPTY]


def test_a_long_quiet_time_does_not_save_up_a_storm():
    budget = RetryBudget(RetryPolicy(attempts=2, budget_floor_per_second=1.0), now=0.0)
    granted = sum(budget.spend(10_000, 100_000.0) for _ in range(50))
    assert granted == 10


def test_the_retry_budget_survives_a_clock_and_a_count_that_stand_still():
    budget = RetryBudget(RetryPolicy(attempts=2, budget_floor_per_second=1.0), now=5.0)
    assert [budget.spend(0, 5.0), budget.spend(0, 4.0), budget.spend(0, 5.0)] == [True, False, False]


def test_the_four_kinds_of_retry_calls_are_counted(clock):
    chain = chain_with(clock)
    chain.call(Script(), deadline=soon(clock))
    chain.call(Script(ConnectFailed()), deadline=soon(clock))
    for operation in (Script(*[ConnectFailed()] * 3), Script(ClientError(status=404))):
        with pytest.raises((ConnectFailed, ClientError)):
            chain.call(operation, deadline=soon(clock))
    seen = chain.snapshot()
    kinds = (
        seen.successful_without_retry,
        seen.successful_with_retry,
        seen.failed_with_retry,
        seen.failed_without_retry,
    )
    assert kinds == (1, 1, 1, 1)
    assert seen.repeats == 3


def test_with_one_attempt_every_failure_is_one_without_retry(clock):
    chain = chain_with(clock, RetryPolicy(attempts=1))
    with pytest.raises(ConnectFailed):
        chain.call(Script(ConnectFailed()), deadline=soon(clock))
    assert (chain.snapshot().failed_without_retry, chain.snapshot().failed_with_retry) == (1, 0)


def test_raw_rejections_and_final_refusals_are_separate_counts(clock):
    chain = chain_with(clock, bulkhead=BulkheadPolicy(1))

    def first_down_then_inside_full(deadline):
        with pytest.raises(BulkheadFull):
            chain.call(Script(), deadline=deadline)
        raise ServerError(status=503)

    with pytest.raises(ServerError):
        chain.call(first_down_then_inside_full, deadline=soon(clock), repeatable=True)
    seen = chain.snapshot()
    assert (seen.rejected_by_bulkhead, seen.refused) == (3, 3)
    with pytest.raises(ConnectFailed):
        chain.call(Script(*[ConnectFailed()] * 3), deadline=soon(clock))
    assert chain.snapshot().refused == 4  # one caller was told "not sent", whatever the three attempts met


@pytest.mark.parametrize(
    ("nonsense", "sentence"),
    [
        ({"attempts": 0}, "attempts must be between 1 and 10, got 0"),
        ({"backoff": -1}, "backoff must be a finite number of seconds ≥ 0, got -1"),
        ({"backoff": 2, "backoff_cap": 1}, "backoff_cap must be finite and ≥ backoff"),
        ({"budget_ratio": 2}, "budget_ratio must be between 0 and 1, got 2"),
        ({"budget_floor_per_second": -1}, "budget_floor_per_second must be between"),
    ],
)
def test_a_retry_policy_refuses_nonsense_with_a_sentence(nonsense, sentence):
    with pytest.raises(ValueError, match=sentence):
        RetryPolicy(**nonsense)
