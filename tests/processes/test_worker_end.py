"""Workers and beat end in an orderly way, or are killed, in the middle of a backlog: every order is paid once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest
import redis

from tests.neighbours import HANG, REFUSE, Neighbourhood
from tests.processes.harness import Browser, Stack, eventually
from tests.processes.test_shutdown import Stop, takes

pytestmark = pytest.mark.process
ORDERS = 30
WORKERS = ("worker", "money-worker", "beat")


def backlog(stack: Stack, neighbours: Neighbourhood) -> str:
    """Orders accepted while the gateway refused connections."""
    base = stack.web(PAYMENT_BREAKER_OPEN_SECONDS="60")
    neighbours.fault(neighbours.gateway, REFUSE)
    browser = Browser(base)
    for _ in range(ORDERS):
        assert browser.buy().status == 302
    assert stack.orders() == {"AWAITING_PAYMENT": ORDERS}
    neighbours.heal()
    return base


def paid(stack: Stack) -> int:
    return stack.orders().get("PAID", 0)


def test_a_backlog_survives_an_orderly_end_a_kill_and_an_emptied_broker(
    stack: Stack, neighbours: Neighbourhood
) -> None:
    backlog(stack, neighbours)
    neighbours.fault(neighbours.gateway, takes(0.15))
    stack.workers()
    eventually(lambda: paid(stack) >= 3, 20)
    code, took = Stop(stack, "money-worker").wait()
    assert code == 0
    at_the_end = paid(stack)
    assert at_the_end < ORDERS
    handed_back = stack.sql(
        "SELECT count(*) FROM orders_outboxmessage WHERE status = 'PENDING' AND lease_token IS NOT NULL"
        " AND kind = 'charge' AND available_at > now() + interval '3 seconds'"
    )
    assert handed_back == [(0,)], "a worker that ended in an orderly way holds nothing"
    stack.processes.pop("money-worker")
    stack.start("money-worker", stack.command("money-worker"))
    eventually(lambda: paid(stack) >= at_the_end + 3, 20)
    stack.kill("money-worker")
    killed_at = paid(stack)
    with redis.Redis.from_url(stack.valkey.url) as client:
        client.flushall()
    stack.start("money-worker", stack.command("money-worker"))
    begun = time.monotonic()
    eventually(lambda: stack.orders() == {"PAID": ORDERS}, 40, str(stack.orders()))
    print(
        f"SIGTERM after {at_the_end} of {ORDERS}: exit 0 in {took:.2f} s; kill -9 and FLUSHALL at {killed_at}; "
        f"all paid {time.monotonic() - begun:.1f} s later"
    )
    assert len(neighbours.charges) == ORDERS
    numbers = [number for (number,) in stack.sql("SELECT number FROM orders_order")]
    said = stack.log("money-worker")
    assert any(f"order={number}" in said for number in numbers), "a worker's log names its orders"
    stack.audit()


@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["top process", "whole group"])
def test_a_worker_told_to_end_finishes_the_call_in_hand(
    stack: Stack, neighbours: Neighbourhood, send: Callable[[int, int], None]
) -> None:
    browser = Browser(stack.web())
    neighbours.fault(neighbours.gateway, takes(2))
    browser.buy()
    stack.workers()
    eventually(
        lambda: len(neighbours.money_calls) >= 2, 20
    )  # the shopper's, which timed out, and the worker's
    code, took = Stop(stack, "money-worker", send).wait()
    assert code == 0
    assert took < 5, took
    assert stack.orders() == {"PAID": 1}
    assert len(neighbours.charges) == 1


@pytest.mark.parametrize("broker", ["well", "hung"])
def test_idle_workers_and_beat_end_within_seconds_whatever_the_broker_does(stack: Stack, broker: str) -> None:
    stack.environment["GRACE_SECONDS"] = "4"
    stack.workers()
    eventually(lambda: listening(stack), 20)
    if broker == "hung":
        stack.valkey.pause()
    stops = {name: Stop(stack, name) for name in WORKERS}
    ends = {name: stop.wait(10) for name, stop in stops.items()}
    if broker == "hung":
        stack.valkey.resume()
    assert {code for code, _ in ends.values()} == {0}, ends
    assert max(took for _, took in ends.values()) < 6, ends
    print(broker, {name: round(took, 1) for name, (_, took) in ends.items()})


def listening(stack: Stack) -> bool:
    """Both workers wait for work, and beat has given some."""
    with redis.Redis.from_url(stack.valkey.url) as client:
        waiting = [entry for entry in client.client_list() if entry["cmd"] == "brpop"]
        return len(waiting) >= 2 and "cmdstat_lpush" in client.info("commandstats")


def test_a_second_signal_ends_a_worker_now_and_the_lease_brings_the_charge_back(
    stack: Stack, neighbours: Neighbourhood
) -> None:
    browser = Browser(stack.web())
    neighbours.fault(neighbours.gateway, {"match": {"method": "POST"}, **HANG})
    browser.buy()
    stack.workers()
    calls = 1
    for number in (signal.SIGTERM, signal.SIGINT):
        eventually(lambda: len(neighbours.money_calls) > calls, 20)  # noqa: B023
        stop = Stop(stack, "money-worker", number=number)
        time.sleep(0.3)
        begun = time.monotonic()
        stop.again()
        stop.wait()
        assert time.monotonic() - begun < 1.5
        assert stack.orders() == {"AWAITING_PAYMENT": 1}
        calls = len(neighbours.money_calls)
        stack.processes.pop("money-worker")
        stack.start("money-worker", stack.command("money-worker"))
        stack.sql("UPDATE orders_outboxmessage SET available_at = now() WHERE kind = 'charge'")
    neighbours.heal()
    eventually(lambda: stack.orders() == {"PAID": 1}, 20)
    assert len(neighbours.charges) == 1
    stack.audit()
