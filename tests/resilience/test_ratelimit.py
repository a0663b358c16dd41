"""Semantics 22: never more than the limit in any stretch of a period, wherever it begins."""

import random
import threading
from bisect import bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilience.errors import RateLimited
from resilience.ratelimit import LimiterPolicy, SlidingLimiter
from resilience.testing import ManualClock


def admitted(limiter):
    try:
        limiter.acquire()
    except RateLimited:
        return False
    return True


def most_in_any_window(times, period):
    return max(bisect_right(times, at + period * (1 - 1e-9)) - place for place, at in enumerate(times))


def test_a_refused_caller_leaves_at_once_and_learns_when_to_come_back():
    clock = ManualClock()
    limiter = SlidingLimiter(LimiterPolicy(5, 0.1), name="gateway", clock=clock)
    assert sum(admitted(limiter) for _ in range(5)) == 5
    clock.advance(0.03)
    with pytest.raises(RateLimited) as refused:
        limiter.acquire()
    assert refused.value.retry_after == pytest.approx(0.07)
    assert (clock.slept, limiter.rejected.value, limiter.available()) == ([], 1, 0)
    clock.advance(0.07)
    assert limiter.available() == 5


def test_both_sides_of_an_edge_together_get_the_limit_once():
    clock = ManualClock(start=0.0)
    limiter = SlidingLimiter(LimiterPolicy(5, 0.1), clock=clock)
    clock.advance(0.099)
    before = sum(admitted(limiter) for _ in range(10))
    clock.advance(0.002)  # fixed cycles would begin anew here
    after = sum(admitted(limiter) for _ in range(10))
    assert (before, after) == (5, 0)


def test_ten_thousand_calls_at_adversarial_times_never_exceed_the_limit():
    clock = ManualClock()
    limiter = SlidingLimiter(LimiterPolicy(5, 0.1), clock=clock)
    dice, times = random.Random(7), []
    for _ in range(10_000):
        clock.advance(dice.choice([0, 0, 0, 0.0001, 0.0199, 0.02, 0.0999, 0.1, 0.1001, dice.random() / 10]))
        if admitted(limiter):
            times.append(clock.monotonic())
    assert most_in_any_window(times, 0.1) == 5
    assert len(times) > 2000


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 60), max_size=80), st.integers(1, 6))
def test_the_limiter_admits_exactly_what_a_naive_log_admits(pauses, limit):
    clock, log = ManualClock(start=0), []
    limiter = SlidingLimiter(LimiterPolicy(limit, 100), clock=clock)
    for pause in pauses:
        clock.advance(pause)
        now = clock.monotonic()
        expected = sum(1 for at in log if now - at < 100) < limit
        assert admitted(limiter) == expected
        if expected:
            log.append(now)


def test_threads_together_never_get_more_than_the_limit():
    clock = ManualClock()
    limiter = SlidingLimiter(LimiterPolicy(50, 10.0), clock=clock)
    ready, got = threading.Barrier(8), []

    def caller():
        ready.wait()
        for _ in range(200):
            got.append(admitted(limiter))

    threads = [threading.Thread(target=caller) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sum(got) == 50


def test_a_thread_that_read_the_clock_late_cannot_use_a_token_twice():
    clock = ManualClock(start=105.0)
    limiter = SlidingLimiter(LimiterPolicy(1, 1.0), clock=clock)
    limiter.take(105.0)
    with pytest.raises(RateLimited) as refused:
        limiter.take(100.0)
    assert refused.value.retry_after == 1.0


def test_a_thread_that_slept_since_it_read_the_clock_is_not_refused_for_that():
    clock = ManualClock(start=100.0)
    limiter = SlidingLimiter(LimiterPolicy(1, 1.0), clock=clock)
    limiter.take(100.5)
    clock.advance(2.0)
    limiter.take(100.0)
    assert limiter.rejected.value == 0
    with pytest.raises(RateLimited):
        limiter.take(100.0)


@pytest.mark.parametrize(
    ("limit", "period", "sentence"),
    [
        (0, 1, "limit must be between 1 and 100,000, got 0"),
        (1, 0, "period must be a finite number of seconds > 0"),
    ],
)
def test_a_limiter_policy_refuses_nonsense_with_a_sentence(limit, period, sentence):
    with pytest.raises(ValueError, match=sentence):
        LimiterPolicy(limit, period)
