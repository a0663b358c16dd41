"""The arithmetic of the time budget."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilience import budget


def test_what_the_own_work_leaves_is_divided_by_weight():
    assert budget.shares(500, 100, {"payment": 3, "catalog": 1, "rates": 1}) == {
        "payment": 240,
        "catalog": 80,
        "rates": 80,
    }


def test_the_default_calls_fit_their_shares():
    payment, catalog = budget.call_budget(240, 1, 50), budget.call_budget(80, 2, 50)
    assert (payment.call_ms, payment.pause_cap_ms, payment.connect_ms, payment.worst_case_ms) == (
        240,
        0,
        150,
        240,
    )
    assert (catalog.call_ms, catalog.pause_cap_ms, catalog.connect_ms, catalog.worst_case_ms) == (
        30,
        20,
        30,
        80,
    )


@given(st.integers(50, 100_000), st.integers(1, 10), st.integers(0, 10_000))
def test_attempts_and_pauses_always_fit_the_share(share, attempts, backoff):
    call = budget.call_budget(share, attempts, backoff)
    pauses = budget.doubling_pauses_ms(attempts, call.first_pause_ms)
    assert call.worst_case_ms == budget.worst_case_ms(attempts, call.call_ms, pauses) <= share
    assert sum(pauses) <= share / 4
    assert call.pause_cap_ms == max(pauses, default=0)
    assert call.first_pause_ms <= backoff
    assert 1 <= call.connect_ms <= min(150, call.call_ms)
    assert call.pool_wait_ms <= call.call_ms


@given(st.integers(2, 10_000), st.integers(0, 10_000), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_shares_never_exceed_the_budget(total, own, weights):
    named = {str(place): weight for place, weight in enumerate(weights)}
    if own >= total:
        with pytest.raises(ValueError, match="leaves nothing of a budget"):
            budget.shares(total, own, named)
    else:
        assert sum(budget.shares(total, own, named).values()) <= total - own


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: budget.shares(500, 500, {"a": 1}),
            "own work of 500 ms leaves nothing of a budget of 500 ms",
        ),
        (lambda: budget.shares(500, -1, {"a": 1}), "own work must be ≥ 0 ms, got -1"),
        (lambda: budget.shares(500, 100, {"rates": 0}), "the share of rates must be ≥ 1, got 0"),
        (lambda: budget.call_budget(3, 4, 0), "a share of 3 ms is too small for 4 attempts"),
        (lambda: budget.call_budget(100, 0, 0), "attempts must be ≥ 1, got 0"),
        (lambda: budget.call_budget(100, 1, -1), "backoff must be ≥ 0 ms, got -1"),
    ],
)
def test_a_budget_that_cannot_be_is_refused_with_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_five_second_timeouts_with_three_attempts_and_doubling_pauses_hold_720_threads():
    pauses = budget.doubling_pauses_ms(attempts=3, first_ms=1000)
    worst = budget.worst_case_ms(attempts=3, timeout_ms=5000, pauses_ms=pauses)
    assert (pauses, worst) == ([1000, 2000], 18_000)
    assert budget.threads_held(40, worst / 1000) == 720
    # The same numbers come out of a share of 18 s.
    call = budget.call_budget(18_000, attempts=3, backoff_ms=1000)
    assert (call.call_ms, call.first_pause_ms, call.pause_cap_ms) == (5000, 1000, 2000)
    assert call.worst_case_ms == worst
    assert budget.rps_sustained(200, worst / 1000) == pytest.approx(11.1, abs=0.02)


def test_doubling_stops_at_the_cap():
    assert budget.doubling_pauses_ms(5, 50, 150) == [50, 100, 150, 150]
    assert budget.doubling_pauses_ms(1, 50) == []


def test_repeats_amplify_by_the_attempts_unless_a_retry_budget_holds_them():
    assert budget.repeat_amplification(3, math.inf) == 3
    assert budget.repeat_amplification(3, 0.1) == 1.1
    assert budget.repeat_amplification(1, 0.1) == 1


def test_a_hanging_dependency_opens_the_breaker_after_the_last_needed_timeout():
    assert budget.seconds_until_open(10, 40, 0.24) == pytest.approx(9 / 40 + 0.24)
    assert budget.seconds_until_open(10, 0, 0.24) == math.inf
    # 5 s timeouts and 4 places: three rounds of timeouts
    assert budget.seconds_until_open(10, 40, 5, max_concurrent=4) == pytest.approx(15 + 1 / 40)


def test_small_helpers_answer_at_their_edges():
    assert budget.seconds_to_fill_window(10, 40) == 0.25
    assert budget.seconds_to_fill_window(10, 0) == math.inf
    assert budget.calls_in_window(10, 0.5) == 5
    assert budget.queue_wait_ms(100, 50, 16) == 312.5
    assert budget.drain_seconds(100, 5) == 20
    assert budget.drain_seconds(100, 0) == math.inf
    assert budget.rps_sustained(10, 0) == math.inf
    assert budget.jitter_swallowed(100, 100)
    assert not budget.jitter_swallowed(50, 1000)
