"""Semantics 27: refuse at the door, the least important first, at once and cheaply."""

import contextlib
import time

import pytest

from resilience.shedding import (
    GradientLimit,
    LoadShedder,
    Overloaded,
    Priority,
    SheddingPolicy,
    queue_seconds,
)
from resilience.testing import ManualClock


def full(shedder, priority):
    """Take places until refused; how many there were. They are given back at the end."""
    with contextlib.ExitStack() as places:
        try:
            while True:
                places.enter_context(shedder.place(priority))
        except Overloaded:
            return shedder.in_flight


def test_the_less_important_are_refused_first():
    shedder = LoadShedder(SheddingPolicy(limit=20, checkout_share=0.9, browsing_share=0.5))
    assert [
        full(shedder, priority) for priority in (Priority.BROWSING, Priority.CHECKOUT, Priority.PAYING)
    ] == [
        10,
        18,
        20,
    ]
    assert shedder.in_flight == 0
    assert [shedder.shed[priority].value for priority in Priority] == [0, 0, 1, 1, 1]


def test_people_on_duty_get_in_beyond_the_limit_but_not_without_one():
    shedder = LoadShedder(SheddingPolicy(limit=2, duty_extra=1))
    with shedder.place(Priority.PAYING), shedder.place(Priority.PAYING):
        assert full(shedder, Priority.DUTY) == 3
        assert full(shedder, Priority.PAYING) == 2


def test_probes_are_exempt_from_every_limit():
    shedder = LoadShedder(SheddingPolicy(limit=1))
    with (
        shedder.place(Priority.PAYING),
        shedder.place(Priority.PROBE, queued=99),
        shedder.place(Priority.PROBE),
    ):
        assert shedder.in_flight == 1


def test_what_waited_too_long_is_refused_at_once_with_a_time_to_come_back():
    shedder = LoadShedder(SheddingPolicy(limit=10, queue_seconds=0.2, retry_after=2))
    with shedder.place(Priority.PAYING, queued=0.2):
        pass
    with pytest.raises(Overloaded) as refused, shedder.place(Priority.PAYING, queued=0.21):
        pass
    assert (refused.value.reason, refused.value.retry_after) == ("queue_time", 2)


def test_a_place_is_given_back_whatever_happens():
    shedder = LoadShedder(SheddingPolicy(limit=1))
    for error in (ValueError, KeyboardInterrupt, Overloaded):
        with pytest.raises(BaseException), shedder.place(Priority.PAYING):  # noqa: B017
            raise error("x", reason="", retry_after=1) if error is Overloaded else error
    assert shedder.in_flight == 0


def test_a_small_limit_still_lets_every_priority_in_when_idle():
    shedder = LoadShedder(SheddingPolicy(limit=1, checkout_share=0.5, browsing_share=0.1))
    with shedder.place(Priority.BROWSING):
        assert shedder.in_flight == 1


def test_a_refusal_costs_less_than_a_millisecond():
    shedder = LoadShedder(SheddingPolicy(limit=1))
    with shedder.place(Priority.PAYING):
        started = time.thread_time()
        for _ in range(200):
            with contextlib.suppress(Overloaded), shedder.place(Priority.PAYING):
                pass
        assert (time.thread_time() - started) / 200 < 0.001


def test_an_adaptive_limit_falls_when_latency_rises_and_recovers_with_it():
    limit = GradientLimit(least=4, most=100)
    for _ in range(200):
        limit.observe(0.01, in_flight=limit.value)
    assert limit.value == 100
    for _ in range(400):
        limit.observe(0.1, in_flight=limit.value)
    fallen = limit.value
    assert 4 <= fallen < 60
    for _ in range(2000):
        limit.observe(0.01, in_flight=limit.value)
    assert limit.value > fallen


def test_an_adaptive_limit_does_not_grow_on_quiet_times():
    limit = GradientLimit(least=4, most=100)
    for _ in range(60):
        limit.observe(0.01, 100)
    for _ in range(400):
        limit.observe(0.2, 100)
    fallen = limit.value
    for _ in range(400):
        limit.observe(0.01, in_flight=1)
    assert limit.value == fallen


def test_the_shedder_follows_its_adaptive_limit():
    clock = ManualClock()
    shedder = LoadShedder(SheddingPolicy(limit=10, adaptive=True, least=2), clock=clock)
    for took in [0.01] * 40 + [1.0] * 400:
        with shedder.place(Priority.PAYING):
            clock.advance(took)
    assert shedder.limit < 10


@pytest.mark.parametrize(
    ("header", "waited"),
    [
        ("t=1700000000.25", 0.75),
        ("1700000000250", 0.75),
        ("t=1700000000250000", 0.75),
        ("1700000005", 0.0),  # in the future
        ("1600000000", 0.0),  # a wrong clock, not a queue
        (None, 0.0),
        ("", 0.0),
        ("t=soon", 0.0),
        ("-1", 0.0),
        ("t=1" + "0" * 400, 0.0),
    ],
)
def test_queue_time_is_read_from_the_proxys_start_header(header, waited):
    assert queue_seconds(header, wall_now=1_700_000_001.0) == pytest.approx(waited)


@pytest.mark.parametrize(
    ("nonsense", "sentence"),
    [
        ({"limit": 0}, "least must be between 1 and limit"),
        ({"limit": 5, "checkout_share": 0.5}, "shares must satisfy"),
        ({"limit": 5, "queue_seconds": 0}, "queue_seconds must be a finite number"),
    ],
)
def test_a_shedding_policy_refuses_nonsense_with_a_sentence(nonsense, sentence):
    with pytest.raises(ValueError, match=sentence):
        SheddingPolicy(**nonsense)
