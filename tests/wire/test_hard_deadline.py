"""Semantics 3: at the whole-call bound the thread is free and the socket closed, whatever the neighbour does."""

import threading
import time

import pytest

from resilience.deadline import Deadline
from resilience.errors import BadAnswer, ConnectFailed, OutcomeUnknown, ResilienceError
from resilience.http import HttpSession
from resilience.resolver import Resolver
from resilience.testing import ScriptedNeighbour
from tests.wire.cases import (
    CAP,
    CASES,
    CONNECT,
    StuckLookup,
    addresses,
    black_hole,
    neighbour_for,
    policy,
    trickle_body,
    unreachable,
    url_for,
)

OVERSHOOT = 0.05
LONG = 60_000


def timed(session, expected, deadline_ms=LONG, **request):
    """The error one call raises, and the seconds it took."""
    started = time.monotonic()
    with pytest.raises(expected) as caught:
        session.request("POST", "/pay", deadline=Deadline.after_ms(deadline_ms), **request)
    return caught.value, time.monotonic() - started


def within(bound, session, expected, **request):
    """The error, once a call has kept its bound: three tries, since a stalled machine is not what is measured."""
    for _ in range(3):
        error, took = timed(session, ResilienceError, **request)
        if isinstance(error, expected) and took <= bound + OVERSHOOT:
            return error
    raise AssertionError(f"{error!r} took {took:.3f} s, the bound is {bound:.3f} s")


@pytest.fixture
def no_thread_left():
    before = {thread for thread in threading.enumerate() if not thread.name.startswith("scripted")}
    yield
    after = {thread for thread in threading.enumerate() if not thread.name.startswith("scripted")}
    assert after <= before


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_every_way_of_holding_a_call_ends_at_its_cap(case, no_thread_left):
    with neighbour_for(case) as neighbour:
        session = HttpSession(policy(url_for(case, neighbour)))
        error = within(CAP, session, case.expected, **case.request)
        assert type(error) is case.expected
        assert getattr(error, "phase", None) == case.phase
        session.close()
        if case.phase != "send":  # a server that does not read does not see the end
            assert neighbour.wait_until_closed(1)


@pytest.mark.parametrize(
    ("name", "bound"), [("refused", 0.0), ("black hole", CONNECT), ("stuck resolver", CONNECT)]
)
def test_a_neighbour_that_cannot_be_reached_costs_the_connect_timeout_at_most(name, bound):
    with unreachable(name) as session:
        assert type(within(bound, session, ConnectFailed)) is ConnectFailed


def test_two_dead_addresses_before_a_live_one_share_the_time_to_connect():
    with black_hole() as first, black_hole() as second, ScriptedNeighbour.answering() as neighbour:
        lookup = addresses(first, second, neighbour.port)
        session = HttpSession(policy("http://gateway.example"), resolver=Resolver(lookup=lookup))
        started = time.monotonic()
        assert session.request("POST", "/pay", deadline=Deadline.after_ms(LONG)).status == 200
        assert time.monotonic() - started <= CONNECT + OVERSHOOT


def test_after_a_hundred_calls_with_a_stuck_resolver_the_number_of_threads_is_not_growing():
    lookup = StuckLookup()
    session = HttpSession(
        policy("http://gateway.example", connect_timeout=0.005), resolver=Resolver(lookup=lookup)
    )
    before = threading.active_count()
    for _ in range(100):
        timed(session, ConnectFailed)
    assert threading.active_count() <= before + 4
    lookup.let_go.set()


def test_the_deadline_ends_a_call_before_its_own_cap():
    with ScriptedNeighbour(trickle_body) as neighbour:
        session = HttpSession(policy(neighbour.url))
        within(0.1, session, BadAnswer, deadline_ms=100)


def test_the_read_timeout_bounds_the_gap_between_two_bytes():
    with neighbour_for(CASES[0]) as neighbour:
        session = HttpSession(policy(neighbour.url, read_timeout=0.05))
        assert within(0.05, session, OutcomeUnknown).phase == "headers"


def test_a_kept_alive_socket_obeys_the_deadline_of_the_call_that_uses_it():
    turns = []

    def second_time_hangs(connection):
        while connection.read_request() is not None:
            turns.append(1)
            if len(turns) > 1:
                connection.hang()
                return
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    with ScriptedNeighbour(second_time_hangs) as neighbour:
        session = HttpSession(policy(neighbour.url, call_timeout=5.0))
        session.request("POST", "/pay", deadline=Deadline.after_ms(5000))
        _, took = timed(session, OutcomeUnknown, deadline_ms=100)
        assert 0.09 < took < 1.0
        assert neighbour.accepted == 1
