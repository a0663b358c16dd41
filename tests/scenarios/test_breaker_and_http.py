"""Breaker, retry and HTTP trouble as a shopper meets it (OP-01, OP-03, OP-04, OP-07, OP-08, OP-10, OP-12).

OP-02 is in tests/wire/test_outage.py and tests/processes/test_half_open.py, OP-05 in tests/resilience/test_breaker.py,
OP-06 in tests/resilience/test_bulkhead.py, OP-09 in test_closed_connections.py; what a client makes of a 200 that is
no success (OP-12) is in tests/clients/test_gateway_trouble.py.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from django.conf import settings

from orders.models import Order, OutboxMessage
from payments import dbtime, mode
from payments.clients import inline_gateway
from payments.gateway import Charge, Declined, NotFound
from resilience.breaker import State
from resilience.chain import Chain, ChainPolicy
from resilience.deadline import Deadline
from resilience.errors import ConnectFailed
from resilience.ratelimit import LimiterPolicy, SlidingLimiter
from resilience.resolver import Resolver
from resilience.retry import RetryPolicy
from tests.neighbours import DOWN, HANG
from tests.wire.cases import StuckLookup, addresses, black_hole
from tests.world import DECLINED, Shopper, World

_numbers = count(1)
PAID = "Your payment has arrived"


@pytest.fixture
def payment(tune: Callable[..., None]) -> Callable[..., None]:
    """Changes numbers of the payment dependency: `payment(breaker_window=4)`."""
    return lambda **numbers: tune(payment=replace(settings.HOLDFAST.payment, **numbers))


def state() -> State:
    return inline_gateway().chain.breaker.state


def wait_for(wanted: State, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while state() is not wanted:
        assert time.monotonic() < end, f"the breaker is {state()}"
        time.sleep(0.01)


def card_charge(method: str) -> Any:
    number = next(_numbers)
    charge = Charge(f"scenario-{number}", 1999, "EUR", method, f"scenario-key-{number}")
    return inline_gateway().charge(charge, Deadline.after_ms(5000))


@pytest.mark.parametrize("probes", ["decline", "hang"])
def test_probes_that_decide_nothing_or_never_answer_do_not_keep_a_healed_gateway_out(
    world: World, payment: Any, tune: Any, probes: str
) -> None:
    """OP-01, and OP-03 (c): declines alone do not close a half-open breaker."""
    tune(checkout_budget_ms=3000)
    payment(
        breaker_window=4,
        breaker_min_calls=4,
        breaker_open_seconds=0.3,
        breaker_half_open_calls=2,
        breaker_half_open_max_seconds=2.0,
    )
    world.fault(world.gateway, DOWN)
    for _ in range(4):
        assert "Accepted" in Shopper().buy().text
    wait_for(State.HALF_OPEN)
    if probes == "decline":
        world.heal()
        for _ in range(5):
            assert "Your card was declined" in Shopper().buy(method=DECLINED).text
        assert state() is State.HALF_OPEN
    else:
        world.fault(world.gateway, HANG)
        for _ in range(2):
            assert "Please do not pay again" in Shopper().buy().text
        assert state() in {State.OPEN, State.HALF_OPEN}
        world.heal()
        wait_for(State.HALF_OPEN)
    for _ in range(2):
        assert PAID in Shopper().buy().text
    assert state() is State.CLOSED
    with world.later(30):
        world.work(5)
    assert set(Order.objects.values_list("status", flat=True)) <= {"PAID", "DECLINED"}
    assert len(world.charges) == Order.objects.filter(status="PAID").count()


def test_declines_and_unknown_ids_neither_open_the_breaker_nor_switch_the_mode(
    world: World, payment: Any, shopper: Shopper
) -> None:
    """OP-03 (a)."""
    payment(breaker_min_calls=2)
    for _ in range(50):
        assert isinstance(card_charge(DECLINED), Declined)
        charge = Charge("nobody", 1, "EUR", "pm_card_visa", "nobody")
        found = inline_gateway().look_up(None, f"pi_unknown{next(_numbers)}", charge, Deadline.after_ms(5000))
        assert isinstance(found, NotFound)
    seen = inline_gateway().chain.breaker.snapshot()
    assert (seen.state, seen.window_calls, seen.ignored) == (State.CLOSED, 0, 100)
    assert not mode.current().degraded
    assert PAID in shopper.buy().text


def test_declines_between_failures_do_not_dilute_them(world: World, payment: Any) -> None:
    """OP-03 (b): one decline, one 500, over and over."""
    payment(breaker_open_seconds=60.0)
    for _ in range(20):
        world.heal()
        card_charge(DECLINED)
        world.fault(world.gateway, DOWN)
        card_charge("pm_card_visa")
    seen = inline_gateway().chain.breaker.snapshot()
    assert (seen.state, seen.failed, seen.ignored) == (State.OPEN, 10, 10)
    assert len(world.money_calls) == 20


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_a_step_of_the_wall_clock_moves_no_limit_no_pause_and_no_deadline(
    step: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OP-04; the breaker's own test is in tests/resilience/test_breaker.py."""
    limiter = SlidingLimiter(LimiterPolicy(1, 60.0))
    limiter.acquire()
    deadline = Deadline.after_ms(60_000)
    rules = RetryPolicy(attempts=2, backoff=0.05, backoff_cap=0.05)
    chain = Chain(ChainPolicy("clock", 5.0, retry=rules), rand=lambda: 0.99)
    real = time.time

    def refused(left: Deadline) -> None:
        monkeypatch.setattr(time, "time", lambda: real() + step)
        raise ConnectFailed

    started = time.monotonic()
    with pytest.raises(ConnectFailed):
        chain.call(refused, deadline=deadline)
    assert 0.04 < time.monotonic() - started < 5
    assert 50_000 < deadline.remaining_ms() <= 60_000
    assert limiter.available() == 0


def test_two_hundred_checkouts_in_a_full_outage_hardly_reach_the_gateway(world: World, payment: Any) -> None:
    """OP-07: hits are at most attempts × admitted, repeats at most a tenth of them and the floor."""
    payment(attempts=3, backoff_ms=1, breaker_window=100, breaker_min_calls=40, breaker_open_seconds=600.0)
    world.stock("ROPE-12", 200)
    world.fault(world.gateway, DOWN)
    started = time.monotonic()
    for _ in range(200):
        assert "Accepted" in Shopper().buy().text
    seconds = time.monotonic() - started
    seen = inline_gateway().chain.snapshot()
    admitted = seen.failed_without_retry + seen.failed_with_retry - seen.refused
    hits = len(world.money_calls)
    assert hits == 40  # the calls that opened the breaker, repeats among them
    assert seen.rejected_by_breaker >= 160
    assert hits <= 3 * max(1, admitted)
    assert seen.repeats <= 0.1 * hits + 1 + seconds  # a tenth, what was there at the start, one a second
    assert Order.objects.filter(status="AWAITING_PAYMENT").count() == 200
    assert world.charges == []


HOSTILE = [
    ("0",),
    ("-5",),
    ("1.5",),
    ("9999999999",),
    ("9" * 6000,),
    ("",),
    ("soon",),
    ("Sun, 06 Nov 1994 08:49:37 GMT",),
    ("Fri, 01 Jan 2099 00:00:00 GMT",),
    ("Fri, 01 Jan 99999 00:00:00 GMT",),
    ("1", "7200"),
]


@pytest.mark.parametrize("values", HOSTILE, ids=[" and ".join(v)[:30] or "empty" for v in HOSTILE])
@pytest.mark.parametrize("status", [429, 503])
def test_a_hostile_retry_after_stretches_no_page_and_no_replay(
    world: World, shopper: Shopper, caplog: pytest.LogCaptureFixture, values: tuple[str, ...], status: int
) -> None:
    """OP-08."""
    headers = [["Retry-After", value] for value in values]
    world.fault(world.gateway, {"effect": {"status": status, "headers": headers, "body": {"error": {}}}})
    started = time.monotonic()
    with caplog.at_level(logging.ERROR):
        page = shopper.buy()
        assert time.monotonic() - started < settings.HOLDFAST.checkout_budget_ms / 1000
        assert "Accepted" in page.text
        world.work(1)
    assert [record.message for record in caplog.records] == []
    message = OutboxMessage.objects.get(kind="charge")
    pause = (message.available_at - dbtime.read()).total_seconds()
    assert pause <= settings.HOLDFAST.outbox_retry_max_seconds
    world.heal()
    with world.later(5):
        world.work()
    assert PAID in shopper.get(page.path).text


@pytest.mark.parametrize("trouble", ["dead addresses", "stuck resolver"])
def test_names_and_dead_addresses_cost_a_checkout_no_more_than_its_budget(
    world: World, shopper: Shopper, payment: Any, tune: Any, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """OP-10: two black holes before the gateway's address, then a resolver that takes 5 s."""
    port = int(world.gateway.url.rsplit(":", 1)[1])
    stuck = StuckLookup()
    tune(checkout_budget_ms=3000)
    payment(url="http://gateway.example")
    with ExitStack() as held:
        if trouble == "stuck resolver":
            held.callback(stuck.let_go.set)
            lookup: Callable[..., Any] = stuck
        else:
            lookup = addresses(held.enter_context(black_hole()), held.enter_context(black_hole()), port)
        monkeypatch.setitem(Resolver.__init__.__kwdefaults__, "lookup", lookup)
        form = _filled(shopper)
        threads = threading.active_count()
        started = time.monotonic()
        page = shopper.submit(form)
        assert time.monotonic() - started < 3
        if trouble == "dead addresses":
            assert PAID in page.text
        else:
            assert "nothing has been taken yet" in page.text
            assert threading.active_count() <= threads + 4
    payment(url=world.gateway.url)
    with world.later(5):
        world.work()
    assert PAID in shopper.get(page.path).text
    assert len(world.charges) == 1


def _filled(shopper: Shopper) -> dict[str, Any]:
    shopper.put_in_basket()
    return shopper.checkout_form()


@pytest.mark.parametrize(
    "effect",
    [
        {"lie": {"status": "pending"}},
        {"lie": {"status": "processing"}},
        {"lie": {"amount": 1, "amount_received": 1}},
        {"lie": {"currency": "usd"}},
        {"lie": {"metadata": {"order_reference": "another"}}},
        {"status": 200, "body": []},
        {"status": 200, "body": None},
    ],
    ids=["pending", "processing", "amount", "currency", "reference", "list", "null"],
)
def test_a_200_that_is_no_success_is_never_shown_as_paid(
    world: World, shopper: Shopper, effect: dict[str, Any]
) -> None:
    """OP-12: the page says that the payment is being confirmed; the truth is found out and taken once."""
    world.fault(world.gateway, {"match": {"method": "POST"}, "effect": effect})
    page = shopper.buy()
    assert page.status == 200
    assert PAID not in page.text
    assert "Please do not pay again" in page.text
    assert world.order().status == "AWAITING_PAYMENT"
    world.heal()
    with world.later(5):
        world.work()
    assert PAID in shopper.get(page.path).text
    assert len(world.charges) == 1
