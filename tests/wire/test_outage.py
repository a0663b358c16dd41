"""Two hundred checkouts against a neighbour that is down: how often it is really asked."""

import threading

import pytest

from resilience.breaker import BreakerPolicy, State
from resilience.chain import Chain, ChainPolicy
from resilience.deadline import Deadline
from resilience.errors import BreakerOpen, ServerError
from resilience.http import HttpSession
from resilience.retry import RetryPolicy
from resilience.testing import ScriptedNeighbour
from tests.wire.cases import policy

RETRY = RetryPolicy(attempts=3, backoff=0.0, budget_ratio=0.1, budget_floor_per_second=1.0)


def run(breaker, calls=200):
    """Hits at the neighbour, connections to it, and the chain's counters."""
    chain = Chain(ChainPolicy("catalog", 1.0, retry=RETRY, breaker=breaker))
    with ScriptedNeighbour.answering(503) as neighbour:
        session = HttpSession(policy(neighbour.url, call_timeout=1.0))
        for _ in range(calls):
            deadline = Deadline.after_ms(1000)
            with pytest.raises((ServerError, BreakerOpen)):
                chain.call(
                    lambda left: session.request("GET", "/", deadline=left),
                    deadline=deadline,
                    repeatable=True,
                )
        return len(neighbour.requests), neighbour.accepted, chain.snapshot()


def test_with_the_breaker_a_full_outage_is_met_with_the_calls_that_open_it():
    hits, connections, seen = run(BreakerPolicy())
    assert seen.breaker.state is State.OPEN
    assert hits == seen.breaker.failed == 10
    assert connections == 1
    assert seen.refused >= 190


def test_without_a_breaker_repeats_stay_below_a_tenth_plus_the_floor():
    hits, _, seen = run(BreakerPolicy(window=1000, min_calls=1000))
    assert hits == 200 + seen.repeats
    assert seen.repeats <= 20 + 1 + 5  # a tenth, what was there at the start, five seconds of floor
    assert seen.repeats >= 15
    assert seen.retry_budget_empty > 100


def test_four_processes_half_open_let_exactly_their_probes_through():
    """OP-02: the flood meets three probes of each breaker before the first one has answered."""
    let_go, asked = threading.Event(), threading.Semaphore(0)

    def slow(connection):
        while connection.read_request() is not None:
            asked.release()
            let_go.wait(5)
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    rules = BreakerPolicy(window=1, min_calls=1, open_seconds=0.001, half_open_calls=3)
    chains = [Chain(ChainPolicy("gateway", 5.0, breaker=rules)) for _ in range(4)]
    refused = threading.Semaphore(0)
    with ScriptedNeighbour(slow) as neighbour:
        session = HttpSession(policy(neighbour.url, call_timeout=5.0, pool_size=60))
        for chain in chains:
            chain.breaker.acquire().failure()
        threading.Event().wait(0.005)

        def checkout(chain):
            try:
                chain.call(
                    lambda left: session.request("GET", "/", deadline=left), deadline=Deadline.after_ms(5000)
                )
            except BreakerOpen:
                refused.release()

        threads = [threading.Thread(target=checkout, args=(chains[n % 4],)) for n in range(60)]
        [thread.start() for thread in threads]
        for _ in range(48):
            assert refused.acquire(timeout=5)
        for _ in range(12):
            assert asked.acquire(timeout=5)
        assert len(neighbour.requests) == 12
        let_go.set()
        [thread.join() for thread in threads]
    assert all(chain.breaker.state is State.CLOSED for chain in chains)
