"""Web processes count guesses together as long as Valkey is there, and wait for it no longer than is agreed."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator

import pytest

from config.valkey import Valkey
from orders import guesses
from orders.guesses import GuessLimit
from resilience.breaker import State
from sandbox.embedded import Running, start_valkey
from tests.servers import temporary_home


@pytest.fixture
def together() -> Iterator[None]:
    yield
    guesses._together.clear()


def limit(name: str) -> GuessLimit:
    """As one process has it: 4 tries at once, 4 more while those are forgotten."""
    return GuessLimit(name, burst=4, per_second=0.001)


def tries(*processes: GuessLimit, each: int = 6) -> int:
    return sum(one.count("192.0.2.1") for one in processes for _ in range(each))


def test_three_processes_let_no_more_through_than_one_may(together: None) -> None:
    name = uuid.uuid4().hex
    assert tries(limit(name), limit(name), limit(name)) == 12, "each alone"
    guesses.count_together(Valkey(os.environ["BROKER_URL"], budget_ms=2000, most=4).count)
    assert tries(limit(name), limit(name), limit(name)) == 8
    assert limit(name).count("192.0.2.2"), "somebody else"


def test_a_hung_valkey_costs_a_few_bounded_waits_and_then_nothing(together: None) -> None:
    server: Running = start_valkey(temporary_home("holdfast-valkey-") / "valkey")
    try:
        client = Valkey(server.url, budget_ms=200, most=2)
        assert client.count("a", 60) == 1
        made = client.connections_made.value
        server.pause()
        times = []
        for _ in range(20):
            begun = time.monotonic()
            assert client.count("a", 60) is None
            times.append(time.monotonic() - begun)
        assert client.chain.breaker.state is State.OPEN
        assert sorted(times)[-1] < 0.5, times
        assert sorted(times)[10] < 0.01, "an open breaker waits for nobody"
        guesses.count_together(client.count)
        assert tries(limit(uuid.uuid4().hex)) == 4, "alone again"
        server.resume()
        end = time.monotonic() + 8
        while client.count("b", 60) is None:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert client.connections_made.value - made <= 12, "a connection for each try, and no more"
    finally:
        server.resume()
        server.stop()
