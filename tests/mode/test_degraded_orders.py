"""Orders taken in degraded mode: promised before, told after, never charged once they have ended."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

from orders.models import Order, OutboxMessage, StockItem
from orders.operations import undo
from orders.tasks import control_mode, drain
from payments import clients, dbtime, mode, probing
from payments.controller import WEB, WORKER
from payments.models import BreakerReport
from resilience.breaker import State
from resilience.breaker_policy import Trigger
from tests.mode.test_storage import process
from tests.neighbours import HANG_AFTER, REFUSE
from tests.world import DECLINED, NEEDS_ACTION, VISA, Shopper, World


def degrade() -> None:
    process("web 1", WEB, failing=61)
    assert control_mode() == "DEGRADED"


def test_before_the_order_the_page_says_when_money_is_taken_and_what_happens_if_it_cannot(
    world: World, shopper: Shopper
) -> None:
    degrade()
    assert "Payments are delayed." in shopper.get("/").text
    shopper.put_in_basket()
    page = shopper.get("/checkout/").text
    assert "We accept your order now and take the payment later, within the hour." in page
    assert "Your goods stay reserved meanwhile." in page
    assert "Nothing is taken now." in page
    assert "the order is cancelled and nothing is charged" in page
    assert "Order now, pay later" in page


def test_an_order_not_paid_within_the_hour_is_cancelled_once_told_and_never_charged_later(
    world: World, shopper: Shopper, mailoutbox: list[Any]
) -> None:
    degrade()
    world.fault(world.gateway, REFUSE)
    page = shopper.buy(quantity=3)
    world.work()
    with world.later(3599):
        assert undo.expire_overdue() == 0
    with world.later(3700):
        assert undo.expire_overdue() == 1
        assert undo.expire_overdue() == 0
        world.heal()
        world.work()
    mode.change("off", actor="duty", reason="the gateway is back")
    with world.later(3800):
        world.work()
    assert "not paid in time" in shopper.get(page.path).text
    stock = StockItem.objects.get(sku="ROPE-12")
    assert (stock.on_hand, stock.reserved, stock.sold) == (100, 0, 0)
    assert world.charges == []
    assert [mail.subject.split()[-1] for mail in mailoutbox] == ["follows", "cancelled"]
    assert not OutboxMessage.objects.filter(kind="charge", status="PENDING").exists()


def test_in_degraded_mode_a_waiting_charge_finds_out_that_the_gateway_is_back(
    world: World, shopper: Shopper
) -> None:
    degrade()
    page = shopper.buy()
    assert world.money_calls == []
    world.work()
    assert len(world.charges) == 1
    assert "Thank you" in shopper.get(page.path).text


def test_with_nothing_to_charge_the_probe_is_a_read_only_call(world: World) -> None:
    degrade()
    drain("payment")
    requests = world.gateway.report(0)["requests"]
    assert [(request["method"], request["path"]) for request in requests] == [("GET", "/v1/balance")]


def test_in_normal_mode_nobody_probes(world: World) -> None:
    drain("payment")
    assert world.gateway.report(0)["requests"] == []


def test_no_more_than_one_breaker_round_of_probes_runs_at_a_time(world: World, shopper: Shopper) -> None:
    """Three others hold the places of the round: this worker hands its charge back untried."""
    import psycopg
    from django.conf import settings
    from django.db import connection

    degrade()
    shopper.buy()
    others = psycopg.connect(**connection.get_connection_params() | {"autocommit": True})
    try:
        for place in range(settings.HOLDFAST.payment.breaker_half_open_calls):
            others.execute("SELECT pg_advisory_lock(%s, %s)", [probing._PLACES, place])
        world.work(rounds=1)
        assert world.money_calls == []
        message = OutboxMessage.objects.get(kind="charge")
        assert (message.status, message.attempts) == ("PENDING", 0)
    finally:
        others.close()  # a holder that dies gives its places back
    world.work()
    assert len(world.charges) == 1


def test_the_whole_way_back_with_a_backlog(world: World) -> None:
    degrade()
    for _ in range(3):
        Shopper().buy()
    process("worker 1", WORKER, healthy=16)
    BreakerReport.objects.filter(kind="web").delete()
    assert control_mode() == "RECOVERING"
    assert control_mode() == "RECOVERING"
    Shopper().buy()  # pays at once again
    assert len(world.charges) == 1
    world.work()
    assert control_mode() == "NORMAL"
    assert {order.status for order in Order.objects.all()} == {"PAID"}


def test_a_recovery_ends_the_pauses_of_charges_that_were_tried_in_the_outage_and_no_later_ones(
    world: World, shopper: Shopper
) -> None:
    def tried() -> None:
        waiting = OutboxMessage.objects.filter(kind="charge")
        waiting.update(available_at=dbtime.read() + timedelta(minutes=5))

    degrade()
    shopper.buy()
    tried()
    process("worker 1", WORKER, healthy=16)
    BreakerReport.objects.filter(kind="web").delete()
    assert control_mode() == "RECOVERING"
    assert OutboxMessage.objects.get(kind="charge").available_at <= dbtime.read()
    tried()
    assert control_mode() == "RECOVERING"
    world.work()
    assert world.charges == []


@pytest.mark.parametrize("held", ["on", "paused"])
def test_a_charge_that_may_have_left_is_found_out_though_a_person_holds_charges_back(
    world: World, shopper: Shopper, tune: Any, held: str
) -> None:
    tune(checkout_budget_ms=1500)
    mode.change("on", actor="duty", reason="maintenance")
    page, other = shopper.buy(), Shopper().buy()
    if held == "paused":
        mode.change("auto", actor="duty", reason="done")
        mode.pause_replay(paused=True, actor="duty", reason="the gateway asked us to")
    world.fault(world.gateway, HANG_AFTER)
    shopper.post(f"{page.path}pay/", {"method": VISA})
    world.heal()
    with world.later(120):
        drain("payment")
    assert "Thank you" in shopper.get(page.path).text
    assert len(world.charges) == 1
    assert Order.objects.get(token=other.path.split("/")[2]).status == "AWAITING_PAYMENT"


def test_a_charge_that_waits_for_its_place_is_not_made_once_a_person_holds_charges_back(
    world: World, shopper: Shopper, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode.change("on", actor="duty", reason="maintenance")
    shopper.buy()
    mode.change("auto", actor="duty", reason="done")

    def meanwhile(_seconds: float) -> None:
        mode.change("on", actor="duty", reason="not done after all")

    monkeypatch.setattr("orders.operations.pay.time.sleep", meanwhile)
    drain("payment")
    assert world.money_calls == []
    message = OutboxMessage.objects.get(kind="charge")
    assert (message.status, message.attempts) == ("PENDING", 0)


@pytest.mark.parametrize("method", [DECLINED, NEEDS_ACTION])
def test_another_try_to_pay_holds_the_limits_on_unpaid_orders_too(
    world: World, shopper: Shopper, tune: Any, method: str
) -> None:
    tune(degraded_max_unpaid_orders=1)
    page = shopper.buy(method=method)
    before = world.order().status
    mode.change("on", actor="duty", reason="maintenance")
    Shopper().buy()
    world.fault(world.gateway, REFUSE)
    told = shopper.post(f"{page.path}pay/", {"method": VISA})
    assert "we cannot accept this order without payment" in told.text
    assert Order.objects.filter(status="AWAITING_PAYMENT").count() == 1
    assert Order.objects.get(token=page.path.split("/")[2]).status == before


def test_a_breaker_that_is_not_closed_holds_the_limits_without_degraded_mode(
    world: World, shopper: Shopper, tune: Any
) -> None:
    tune(degraded_max_unpaid_orders=1)
    world.fault(world.gateway, REFUSE)
    shopper.buy()
    clients.inline_gateway().chain.breaker.force_open()
    refused = Shopper().buy()
    assert refused.status == 503
    assert Order.objects.count() == 1


@pytest.mark.parametrize("fault", [{"status": 401}, {"status": 403}, {"hang": True}], ids=str)
def test_charges_that_come_to_nothing_hold_the_limits_though_no_breaker_has_opened(
    world: World, shopper: Shopper, tune: Any, fault: dict[str, Any]
) -> None:
    tune(degraded_max_unpaid_orders=2, checkout_budget_ms=1500)
    world.fault(world.gateway, {"effect": fault})
    assert [Shopper().buy().status for _ in range(3)] == [200, 200, 503]
    assert clients.inline_gateway().chain.breaker.state is State.CLOSED
    assert [order.status for order in Order.objects.all()] == ["AWAITING_PAYMENT"] * 2
    world.heal()
    with world.later(120):
        world.work()
        assert "Thank you" in shopper.buy().text


@pytest.mark.parametrize("limit", ["degraded_max_unpaid_orders", "degraded_max_order_total"])
@pytest.mark.parametrize("cause", ["an answer that settled nothing", "a breaker half open"])
def test_a_doubt_ends_by_an_order_even_if_the_limits_leave_no_room_for_any(
    world: World, shopper: Shopper, tune: Any, limit: str, cause: str
) -> None:
    tune(**{limit: 0})
    if cause == "a breaker half open":
        breaker = clients.inline_gateway().chain.breaker
        with breaker.lock:
            for trigger in (Trigger.THRESHOLD, Trigger.WAIT_OVER):
                breaker.move(trigger, time.monotonic())
    else:
        world.fault(world.gateway, {"effect": {"status": 401}})
        assert [Shopper().buy().status for _ in range(3)] == [200, 503, 503]
        world.heal()
        with world.later(120):
            world.work()
    with world.later(120):
        pages = [Shopper().buy() for _ in range(4)]
    assert ["Thank you" in page.text for page in pages] == [True] * 4
    assert clients.inline_gateway().chain.breaker.state is State.CLOSED


def test_an_order_that_is_just_being_charged_counts_among_the_unpaid(
    world: World, shopper: Shopper, tune: Any
) -> None:
    tune(degraded_max_unpaid_orders=1)
    shopper.buy()
    Order.objects.update(status="PLACED")
    mode.change("on", actor="duty", reason="maintenance")
    with world.unaudited():
        assert Shopper().buy().status == 503


def test_letting_go_of_on_with_orders_waiting_is_a_recovery(world: World, shopper: Shopper) -> None:
    mode.change("on", actor="duty", reason="maintenance")
    shopper.buy()
    assert mode.change("auto", actor="duty", reason="done").effective == "RECOVERING"
    with world.later(5):
        world.work()
    assert control_mode() == "NORMAL"


@pytest.mark.parametrize("gone", [timedelta(seconds=0), timedelta(seconds=16)], ids=["alive", "dead"])
def test_only_live_workers_let_the_shop_recover(world: World, gone: timedelta) -> None:
    degrade()
    process("worker 1", WORKER, healthy=16)
    with dbtime.shifted(gone):
        assert control_mode() == ("DEGRADED" if gone else "RECOVERING")


def test_a_reset_forgets_the_clients(world: World) -> None:
    clients.background_gateway()
    clients.reset()
    assert clients.built_background_gateway() is None
