"""Semantics 28: cost, as ratios to hand-written floors within one run. Bounds are loose: `make bench` is exact."""

import pytest

from bench.measure import medians
from bench.subjects import subjects

OURS_AND_FLOORS = [subject for subject in subjects() if subject.role != "peer"]


@pytest.fixture(scope="module")
def taken():
    calls = {(subject.kind, subject.role, subject.name): subject.make() for subject in OURS_AND_FLOORS}
    return medians(calls, rounds=7, seconds=0.01)


def of(taken, kind, role, word=""):
    return next(figure for key, figure in taken.items() if key[:2] == (kind, role) and word in key[2])


def test_the_whole_chain_costs_little_more_than_twice_the_floor_without_locks(taken):
    assert of(taken, "chain", "ours") <= 2.5 * of(taken, "chain", "floor", "without locks")


def test_a_breaker_with_window_and_slow_calls_costs_no_more_than_one_lock_would(taken):
    assert of(taken, "breaker", "ours") <= 1.5 * of(taken, "breaker", "floor", "with lock")


def test_an_open_breaker_rejects_at_nearly_the_cost_of_a_raise(taken):
    assert of(taken, "open", "ours") <= 2 * of(taken, "open", "floor")
