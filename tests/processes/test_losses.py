"""The broker or the database goes away: answers stay honest and in time, and everything recovers by itself."""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
import requests

from tests.neighbours import HANG, Neighbourhood
from tests.processes.harness import Browser, Stack, eventually

pytestmark = pytest.mark.process
BUDGET_SECONDS = 0.5
MARGIN_SECONDS = 0.1


@pytest.mark.parametrize("how", ["stopped", "hung", "emptied"])
def test_without_valkey_orders_are_taken_in_time_and_all_are_paid_when_it_is_back(
    stack: Stack, neighbours: Neighbourhood, how: str
) -> None:
    base = stack.web()
    stack.workers()
    Browser(base).buy()
    {"stopped": stack.valkey.kill, "hung": stack.valkey.pause, "emptied": lambda: None}[how]()
    times = []
    for number in range(6):
        if number == 3:
            neighbours.fault(neighbours.gateway, HANG)
        browser = Browser(base)
        browser.put_in_basket()
        form = browser.checkout_form()
        begun = time.monotonic()
        assert browser.submit(form).status == 302
        times.append(time.monotonic() - begun)
    # A wait for Valkey would be in every one of them; a busy machine delays some.
    assert statistics.median(times) < BUDGET_SECONDS + MARGIN_SECONDS, times
    neighbours.heal()
    {"stopped": stack.valkey.start, "hung": stack.valkey.resume, "emptied": lambda: _flush(stack)}[how]()
    eventually(lambda: stack.orders() == {"PAID": 7}, 30, str(stack.orders()))
    assert len(neighbours.charges) == 7
    stack.audit()


def _flush(stack: Stack) -> None:
    import redis

    with redis.Redis.from_url(stack.valkey.url) as client:
        client.flushall()


@contextmanager
def people_ordering(base: str) -> Iterator[Counter[str]]:
    """Orders without a pause while the body runs; counts what came of it."""
    seen: Counter[str] = Counter()
    stop = threading.Event()

    def order() -> None:
        while not stop.is_set():
            try:
                page = Browser(base).buy()
            except (AssertionError, requests.RequestException) as error:
                seen["page refused" if isinstance(error, AssertionError) else "no answer"] += 1
                time.sleep(0.05)
                continue
            assert page.status != 503 or page.headers.get("Retry-After")
            seen[str(page.status)] += 1

    people = [threading.Thread(target=order) for _ in range(3)]
    for person in people:
        person.start()
    try:
        yield seen
    finally:
        stop.set()
        for person in people:
            person.join(60)


@pytest.fixture
def own(neighbours: Neighbourhood) -> Iterator[Stack]:
    with Stack(own_postgres=True) as stack:
        yield stack


def works_again(stack: Stack, base: str) -> bool:
    try:
        page = Browser(base).buy()
    except (AssertionError, requests.RequestException):
        return False
    return page.status == 302


def test_a_restarted_database_costs_an_honest_503_and_no_charge_without_an_order(
    own: Stack, neighbours: Neighbourhood
) -> None:
    assert own.postgres is not None
    base = own.web()
    own.workers()
    with people_ordering(base) as seen:
        eventually(lambda: seen["302"] >= 10, 20)
        own.postgres.restart()
        eventually(lambda: works_again(own, base), 10, "no order within 10 s of the restart")
    assert seen["500"] == 0, seen
    eventually(lambda: set(own.orders()) == {"PAID"}, 30, str(own.orders()))
    assert len(neighbours.charges) == own.orders()["PAID"]
    own.audit()


def test_a_read_only_database_takes_no_order_and_no_money_and_recovers(
    own: Stack, neighbours: Neighbourhood
) -> None:
    base = own.web()
    own.workers()
    Browser(base).buy()
    waiting = Browser(base)
    waiting.put_in_basket()
    form = waiting.checkout_form()
    _read_only(own, "on")
    before = len(neighbours.money_calls)
    answers = [waiting.submit(form) for _ in range(5)]
    assert {page.status for page in answers} == {503}
    assert all(page.headers["Retry-After"] for page in answers)
    assert "nothing was ordered" in answers[-1].text
    assert len(neighbours.money_calls) == before
    _read_only(own, "off")
    eventually(lambda: waiting.submit(form).status == 302, 10)
    eventually(lambda: own.orders() == {"PAID": 2}, 10)
    assert len(neighbours.charges) == 2
    own.audit()


def _read_only(stack: Stack, value: str) -> None:
    """As after a fail-over: the sessions end, new ones find a server that only reads."""
    assert stack.postgres is not None
    with psycopg.connect(stack.postgres.url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(f"ALTER DATABASE holdfast SET default_transaction_read_only = {value}")  # type: ignore[arg-type]
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = 'holdfast' AND pid <> pg_backend_pid()"
        )
