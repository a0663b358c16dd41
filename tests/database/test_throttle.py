"""Semantics 23: a limit that belongs to the neighbour is one row in PostgreSQL, by PostgreSQL's clock."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from django.db import connection

from payments import dbtime, throttle
from payments.models import Throttle


def take_five(barrier: threading.Barrier) -> None:
    barrier.wait(10)
    try:
        for _ in range(5):
            assert throttle.reserve("pace", 10.0, 0, longest_wait=60) is not None
    finally:
        connection.close()


def test_four_claimants_together_keep_the_pace_of_one(transactional_db: None) -> None:
    barrier = threading.Barrier(4)
    began = dbtime.read()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(take_five, [barrier] * 4))
    last = Throttle.objects.get(name="pace").last_at
    assert last is not None
    assert (last - began).total_seconds() >= 19 / 10 - 0.001  # twenty places, ten a second


def test_a_place_too_far_away_is_not_taken(transactional_db: None) -> None:
    assert throttle.reserve("pace", 1.0, 0, longest_wait=0.5) == 0
    before = Throttle.objects.get(name="pace").last_at
    assert throttle.reserve("pace", 1.0, 0, longest_wait=0.5) is None
    assert Throttle.objects.get(name="pace").last_at == before


def test_the_pace_ramps_up_after_a_pause(transactional_db: None) -> None:
    assert throttle.pace(5.0, 10, 0.0) == 1
    assert throttle.pace(5.0, 10, 5.0) == 3
    assert throttle.pace(5.0, 10, 20.0) == 5
    throttle.reserve("pace", 5.0, 10, longest_wait=60)
    first = Throttle.objects.get(name="pace").ramp_from
    with dbtime.shifted(timedelta(seconds=throttle.IDLE_SECONDS + 60)):
        throttle.reserve("pace", 5.0, 10, longest_wait=60)
    again = Throttle.objects.get(name="pace").ramp_from
    assert first is not None
    assert again is not None
    assert again - first > timedelta(seconds=throttle.IDLE_SECONDS)


def test_the_ramp_is_the_same_however_far_ahead_the_places_are_taken(transactional_db: None) -> None:
    began = dbtime.read()
    for _ in range(12):
        assert throttle.reserve("pace", 5.0, 4, longest_wait=60) is not None
    last = Throttle.objects.get(name="pace").last_at
    assert last is not None
    assert abs((last - began).total_seconds() - 4) < 0.2  # from 1 to 5 a second: twelve in four seconds
