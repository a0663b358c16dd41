"""Semantics 24 and 25: the order of the layers, and what the caller gets."""

import pytest

from resilience.breaker import BreakerPolicy, State
from resilience.bulkhead import BulkheadPolicy
from resilience.chain import Chain, ChainPolicy
from resilience.deadline import Deadline, current_deadline, use_deadline
from resilience.errors import (
    BreakerOpen,
    BulkheadFull,
    ClientError,
    ConnectFailed,
    OutcomeUnknown,
    OutOfTime,
    RateLimited,
    ServerError,
)
from resilience.events import EventKind
from resilience.ratelimit import LimiterPolicy
from resilience.registry import Registry
from resilience.retry import RetryPolicy
from resilience.testing import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def soon(clock):
    return lambda ms=10_000: Deadline.after_ms(ms, clock=clock)


def make(clock, **layers):
    layers.setdefault("breaker", BreakerPolicy(jitter=0))
    return Chain(
        ChainPolicy("gateway", layers.pop("call_timeout", 0.24), **layers), clock=clock, rand=lambda: 0.5
    )


def raises(error):
    def operation(deadline):
        raise error

    return operation


def test_a_value_comes_back_as_it_is(clock, soon):
    assert make(clock).call(lambda deadline: [1], deadline=soon()) == [1]


def test_each_attempt_gets_the_smaller_of_its_timeout_and_what_is_left(clock, soon):
    chain = make(clock)
    assert chain.call(lambda d: d.remaining(), deadline=soon(500)) == pytest.approx(0.24)
    assert chain.call(lambda d: d.remaining(), deadline=soon(100)) == pytest.approx(0.1)


def test_every_attempt_passes_all_layers_again(clock, soon):
    retry = RetryPolicy(attempts=3, backoff=0, budget_ratio=1, budget_floor_per_second=100)
    chain = make(
        clock, retry=retry, limiter=LimiterPolicy(2, 60), breaker=BreakerPolicy(window=100, min_calls=50)
    )
    with pytest.raises(RateLimited):  # the third attempt
        chain.call(raises(ConnectFailed()), deadline=soon())
    seen = chain.snapshot()
    assert (seen.breaker.failed, seen.rejected_by_limiter, seen.repeats) == (2, 1, 2)


def test_the_breaker_opening_in_mid_call_ends_the_repeats(clock, soon):
    retry = RetryPolicy(attempts=3, backoff=0, budget_ratio=1, budget_floor_per_second=100)
    chain = make(clock, retry=retry, breaker=BreakerPolicy(window=2, min_calls=2))
    with pytest.raises(BreakerOpen):
        chain.call(raises(ConnectFailed()), deadline=soon())
    assert chain.snapshot().breaker.failed == 2


def test_an_open_breaker_uses_up_no_limit_and_no_place(clock, soon):
    chain = make(clock, limiter=LimiterPolicy(1, 60), bulkhead=BulkheadPolicy(1))
    chain.breaker.force_open()
    for _ in range(5):
        with pytest.raises(BreakerOpen):
            chain.call(lambda d: None, deadline=soon())
    assert (chain.limiter.available(), chain.bulkhead.available, chain.snapshot().rejected_by_limiter) == (
        1,
        1,
        0,
    )


def test_a_used_up_limit_takes_no_place(clock, soon):
    chain = make(clock, limiter=LimiterPolicy(1, 60), bulkhead=BulkheadPolicy(1))
    chain.call(lambda d: None, deadline=soon())
    with pytest.raises(RateLimited):
        chain.call(lambda d: None, deadline=soon())
    assert chain.snapshot().rejected_by_bulkhead == 0


def test_the_breaker_sees_the_neighbours_failures_and_not_ours(clock, soon):
    chain = make(clock, bulkhead=BulkheadPolicy(1))

    def outer(deadline):
        for _ in range(40):
            with pytest.raises(BulkheadFull):
                chain.call(lambda d: None, deadline=deadline)

    chain.call(outer, deadline=soon())
    seen = chain.snapshot()
    assert (seen.breaker.state, seen.breaker.failed, seen.rejected_by_bulkhead) == (State.CLOSED, 0, 40)


def test_local_refusals_in_half_open_give_the_permit_back(clock, soon):
    chain = make(
        clock,
        breaker=BreakerPolicy(window=1, min_calls=1, half_open_calls=1, jitter=0),
        limiter=LimiterPolicy(1, 40),
    )
    with pytest.raises(ServerError):
        chain.call(raises(ServerError(status=500)), deadline=soon())
    clock.advance(30)
    with pytest.raises(RateLimited):
        chain.call(lambda d: None, deadline=soon())
    clock.advance(10)
    chain.call(lambda d: None, deadline=soon())
    assert chain.breaker.state is State.CLOSED


def test_every_refusal_says_when_to_come_back_where_that_is_known(clock, soon):
    chain = make(clock, limiter=LimiterPolicy(1, 0.1), breaker=BreakerPolicy(window=2, min_calls=2, jitter=0))
    for wait, kind, known in ((0, None, None), (0.04, RateLimited, 0.06)):
        clock.advance(wait)
        if kind is None:
            chain.call(lambda d: None, deadline=soon())
            continue
        with pytest.raises(kind) as refused:
            chain.call(lambda d: None, deadline=soon())
        assert refused.value.retry_after == pytest.approx(known)
    clock.advance(1)
    with pytest.raises(ServerError) as answered:
        chain.call(raises(ServerError(status=503, retry_after=7.0)), deadline=soon())
    assert answered.value.retry_after == 7.0
    with pytest.raises(BreakerOpen) as refused:
        chain.call(lambda d: None, deadline=soon())
    assert refused.value.retry_after == pytest.approx(30)
    with pytest.raises(OutOfTime):
        chain.call(lambda d: None, deadline=soon(0))


def test_a_strangers_tiny_deadline_cannot_open_the_breaker(clock, soon):
    chain = make(clock)

    def times_out(deadline):
        clock.advance(deadline.remaining())
        raise OutcomeUnknown

    for _ in range(50):
        with pytest.raises(OutcomeUnknown):
            chain.call(times_out, deadline=soon(100))  # less than half of 240 ms
    assert chain.breaker.state is State.CLOSED
    for _ in range(10):
        with pytest.raises(OutcomeUnknown):
            chain.call(times_out, deadline=soon(200))
    assert chain.breaker.state is State.OPEN


def test_an_error_answer_within_a_tiny_deadline_still_counts(clock, soon):
    chain = make(clock)
    for _ in range(10):
        with pytest.raises(ServerError):
            chain.call(raises(ServerError(status=500)), deadline=soon(20))
    assert chain.breaker.state is State.OPEN


def test_the_decorator_form_uses_the_current_deadline(clock, soon):
    chain = make(clock)

    @chain.protect(repeatable=True)
    def left(extra):
        return current_deadline().remaining() + extra

    assert left(1) == pytest.approx(1.24)
    with use_deadline(soon(100)):
        assert left(0) == pytest.approx(0.1)


def test_the_context_manager_form_is_one_attempt_through_all_layers(clock, soon):
    chain = make(clock, limiter=LimiterPolicy(100, 1), bulkhead=BulkheadPolicy(1))
    with chain.attempt(deadline=soon()) as attempt:
        assert (current_deadline(), chain.bulkhead.available) == (attempt, 0)
        assert attempt.remaining() == pytest.approx(0.24)
    for _ in range(9):
        with pytest.raises(ServerError), chain.attempt(deadline=soon()):
            raise ServerError(status=500)
    with pytest.raises(BreakerOpen), chain.attempt(deadline=soon()):
        pass
    with pytest.raises(OutOfTime), chain.attempt(deadline=soon(0)):
        pass
    seen = chain.snapshot()
    assert (seen.successful_without_retry, seen.failed_without_retry, seen.refused) == (1, 11, 2)
    assert seen.bulkhead_available == 1


def test_the_observer_hears_outcome_and_time_of_every_attempt(clock, soon):
    heard = []
    chain = Chain(
        ChainPolicy("gateway", 1.0), clock=clock, observer=lambda *heard_now: heard.append(heard_now)
    )

    def takes(deadline):
        clock.advance(0.25)

    chain.call(takes, deadline=soon())
    for error in (ServerError(status=500), ClientError(status=404), OutOfTime()):
        with pytest.raises(type(error)):
            chain.call(raises(error), deadline=soon())
    assert heard == [
        ("gateway", "success", 0.25),
        ("gateway", "failure", 0),
        ("gateway", "ignored", 0),
        ("gateway", "refused", 0),
    ]


def test_a_failing_observer_changes_nothing(clock, soon, caplog):
    chain = Chain(ChainPolicy("gateway", 1.0), clock=clock, observer=lambda *_: 1 / 0)
    assert chain.call(lambda d: 7, deadline=soon()) == 7
    assert "the observer of gateway failed" in caplog.text


def test_every_layer_tells_the_same_event_stream(clock, soon):
    chain = make(clock, limiter=LimiterPolicy(1, 60), bulkhead=BulkheadPolicy(1))
    kinds = []
    unsubscribe = chain.events.subscribe(lambda event: kinds.append(event.kind))
    chain.call(lambda d: None, deadline=soon())
    with pytest.raises(RateLimited):
        chain.call(lambda d: None, deadline=soon())
    with pytest.raises(OutOfTime):
        chain.call(lambda d: None, deadline=soon(0))
    chain.breaker.force_open()
    unsubscribe()
    unsubscribe()
    chain.breaker.reset()
    assert kinds == [EventKind.RATE_LIMITED, EventKind.OUT_OF_TIME, EventKind.STATE_CHANGED]


def test_the_registry_keeps_one_chain_for_each_name(clock):
    registry = Registry()
    chain = registry.register(make(clock))
    assert registry.get("gateway") is registry.get_or_create("gateway", lambda: make(clock)) is chain
    assert registry.all() == (chain,)
    with pytest.raises(ValueError, match="'gateway' is registered already"):
        registry.register(make(clock))
    with pytest.raises(KeyError):
        registry.get("nobody")


@pytest.mark.parametrize(
    ("nonsense", "sentence"),
    [
        ({"name": ""}, "name must not be empty"),
        ({"call_timeout": 0}, "call_timeout must be a finite number of seconds > 0, got 0"),
        ({"minimum": 2}, r"minimum must be ≥ 0 and below call_timeout \(1.0\), got 2"),
        ({"breaker": BreakerPolicy(slow_call=1.0)}, "no call could ever be slow"),
    ],
)
def test_a_chain_policy_refuses_nonsense_with_a_sentence(nonsense, sentence):
    with pytest.raises(ValueError, match=sentence):
        ChainPolicy(**{"name": "gateway", "call_timeout": 1.0, **nonsense})
