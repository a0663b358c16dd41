"""The replay of a backlog by several workers and beats: its pace, an outage in its middle, and deaths."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.neighbours import DOWN, Neighbourhood
from tests.processes.harness import Browser, Stack, eventually

pytestmark = pytest.mark.process
RAMP = 4
BACKLOG = int(os.environ.get("REPLAY_BACKLOG", "40"))
"""Charges to replay; 100 for the record."""


def backlog(stack: Stack, count: int) -> None:
    """So many orders taken unpaid, while a person holds payments back."""
    stack.environment.update(CHECKOUT_BUDGET_MS="8000", INLINE_LEASE_SECONDS="10")
    stack.manage("mode", "on", "--reason", "maintenance of the gateway")
    base = stack.web()

    def order(_: int) -> None:
        browser = Browser(base)
        browser.put_in_basket()
        page = browser.submit(browser.checkout_form())
        assert page.status == 302, page.text

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(order, range(count)))
    stack.kill("web")
    assert stack.orders() == {"AWAITING_PAYMENT": count}


def start_workers(stack: Stack, workers: int = 3, beats: int = 2) -> None:
    stack.start("worker", stack.command("worker"))
    for number in range(1, workers + 1):
        stack.start(f"money-{number}", stack.command("money-worker").replace("money@", f"money{number}@"))
    for number in range(1, beats + 1):
        stack.start(f"beat-{number}", stack.command("beat").replace("/beat", f"/beat-{number}"))


def arrivals(neighbours: Neighbourhood) -> list[float]:
    """When the gateway was asked for money, in seconds."""
    return sorted(call["at_ms"] / 1000 for call in neighbours.money_calls)


def busiest(times: list[float], seconds: float = 1.0) -> int:
    """The most calls in any sliding window."""
    return max(sum(1 for other in times if start <= other < start + seconds) for start in times)


@pytest.mark.timeout(240)
def test_a_backlog_is_charged_at_five_a_second_by_three_workers_and_two_beats(
    stack: Stack, neighbours: Neighbourhood
) -> None:
    stack.environment.update(REPLAY_RATE="5", REPLAY_RAMP_SECONDS=str(RAMP), OUTBOX_LEASE_SECONDS="20")
    backlog(stack, BACKLOG)
    start_workers(stack)
    stack.manage("mode", "auto")
    eventually(lambda: len(neighbours.money_calls) >= BACKLOG, 120, str(stack.orders()))
    times = arrivals(neighbours)
    # The ramp goes from 1 to 5 a second and so makes 3 charges a second on average.
    expected = RAMP + (BACKLOG - 3 * RAMP) / 5
    took = times[-1] - times[0]
    print(
        f"{BACKLOG} charges in {took:.1f} s, expected {expected:.1f} s; most in one second: {busiest(times)}"
    )
    # A machine with more to do than it can wakes sleepers late, so that two come at once and none before.
    overloaded = os.getloadavg()[0] > (os.cpu_count() or 1)
    assert busiest(times) <= 5 + (2 if overloaded else 1)
    assert took == pytest.approx(expected, rel=0.3 if overloaded else 0.1)
    eventually(lambda: stack.orders() == {"PAID": BACKLOG}, 30, str(stack.orders()))
    due = stack.sql("SELECT o.number FROM orders_order o ORDER BY o.reserve_until, o.id")
    called = [call["reference"] for call in neighbours.money_calls]
    places = {number: place for place, (number,) in enumerate(due)}
    # Earliest reserve first: as many may be out of step as there are children at work.
    assert max(abs(places[number] - place) for place, number in enumerate(called)) <= 6
    stack.audit()


@pytest.mark.timeout(240)
def test_an_outage_in_the_middle_uses_up_no_attempt_and_two_killed_workers_leave_one_to_go_on(
    stack: Stack, neighbours: Neighbourhood
) -> None:
    stack.environment.update(
        REPLAY_RATE="10",
        REPLAY_RAMP_SECONDS="2",
        OUTBOX_LEASE_SECONDS="16",
        PAYMENT_BREAKER_WINDOW="4",
        PAYMENT_BREAKER_MIN_CALLS="4",
        PAYMENT_BREAKER_OPEN_SECONDS="3",
    )
    backlog(stack, 60)
    start_workers(stack)
    stack.manage("mode", "auto")
    neighbours.wait_for_charges(15, 60)
    before = len(neighbours.money_calls)
    neighbours.fault(neighbours.gateway, DOWN)
    threading.Event().wait(9)
    during = len(neighbours.gateway.report(0)["requests"]) - before
    tries = stack.sql(
        "SELECT max(attempts) FROM orders_outboxmessage WHERE status = 'PENDING' AND kind = 'charge'"
    )
    print(f"{during} requests reached the broken gateway in 9 s; most attempts used up: {tries[0][0]}")
    # Six children with a breaker each: one round of 4 calls, then 3 probes for each time it half-opens.
    assert during <= 6 * (4 + 3 * 3)
    assert tries[0][0] <= 1  # a message in somebody's hands counts its claim, nothing more
    stack.kill("money-1")
    stack.kill("money-2")
    neighbours.heal()
    eventually(lambda: stack.orders() == {"PAID": 60}, 90, str(stack.orders()))
    assert len(neighbours.charges) == 60
    stack.audit()
