"""The crash-point matrix: at every point between two durable steps a real process is killed with -9.

A child is forked off this process, which has Django loaded; it does one step by the real code over its own
connections and kills itself at the point. Then time passes, healthy workers take their turns, and the order must
have ended right: charged once or not at all, with the gateway's id of the charge noted.
"""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections
from django.test import Client

from orders import clients as order_clients
from orders.models import Order
from orders.operations import undo
from payments import clients as payment_clients
from payments import crashpoints, incoming
from payments.models import Payment
from payments.webhooks import WebhookEvent
from tests.neighbours import HANG_AFTER, REFUSE
from tests.world import NEEDS_ACTION, VISA, Shopper, World

RUNS = int(os.environ.get("CRASH_RUNS", "2"))
"""Kills at each point; 20 for the record."""
_DIED = -signal.SIGKILL


def killed_at(point: str, step: Callable[[], Any]) -> None:
    """Runs `step` in a child that kills itself at `point`; fails if it never got there."""
    connections.close_all()
    payment_clients.reset()
    order_clients.reset()
    pid = os.fork()
    if pid == 0:
        try:
            _fresh_connections()
            with crashpoints.armed(
                lambda name: os.kill(os.getpid(), signal.SIGKILL) if name == point else None
            ):
                step()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(3)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == _DIED, f"the child never reached {point}"


def _fresh_connections() -> None:
    """The parent's pool has threads that a fork does not copy, and what it has open is the parent's: the child makes
    its own. After a browser's tests Playwright's loop runs in the parent alone, and a child that has none sees what
    was opened before it.
    """
    wrapper = connections["default"]
    wrapper.connection = None
    wrapper.settings_dict["OPTIONS"].pop("pool", None)


def order_of(world: World, shopper: Shopper, fault: dict[str, Any] | None = None, **form: Any) -> Order:
    """An order that waits, with the fault gone again."""
    if fault:
        world.fault(world.gateway, fault)
    shopper.buy(**form)
    world.heal()
    return Order.objects.latest("pk")


def time_passes(world: World) -> None:
    """Every lease and pause has run out; healthy workers take their turns, several times."""
    for seconds in (40, 80, 120, 160, 200, 240):
        with world.later(seconds):
            world.work(1)
            undo.expire_overdue()


def drain(world: World) -> Callable[[], Any]:
    def work() -> None:
        with world.later(40):
            world.work(1)

    return work


def submit(client: Client, form: dict[str, Any]) -> Callable[[], Any]:
    return lambda: client.post("/checkout/", form)


@pytest.fixture(autouse=True)
def _patience(tune: Any) -> None:
    tune(checkout_budget_ms=2000, void_look_seconds=0.1, action_poll_seconds=0.1)


INLINE = ["place.committed", "charge.called", "settle.written", "settle.committed"]
REPLAYED = ["outbox.claimed", "charge.begun", "charge.called", "settle.written", "settle.committed"]


@pytest.mark.parametrize("point", INLINE)
def test_a_web_process_dies_in_a_checkout(world: World, point: str) -> None:
    for run in range(1, RUNS + 1):
        shopper = Shopper()
        shopper.put_in_basket()
        form = shopper.checkout_form()
        killed_at(point, submit(shopper.client, form))
        time_passes(world)
        assert Order.objects.latest("pk").status == "PAID"
        again = shopper.submit(form)
        assert "Thank you" in again.text
        _one_charge_each(world, run)


@pytest.mark.parametrize("point", REPLAYED)
@pytest.mark.parametrize("fault", [REFUSE, HANG_AFTER], ids=["not sent", "answer lost"])
def test_a_worker_dies_at_a_charge(world: World, point: str, fault: dict[str, Any]) -> None:
    for run in range(1, RUNS + 1):
        order_of(world, Shopper(), fault)
        killed_at(point, drain(world))
        time_passes(world)
        assert Order.objects.latest("pk").status == "PAID"
        _one_charge_each(world, run)


@pytest.mark.parametrize("point", ["cancel.written", "cancel.committed"])
def test_a_web_process_dies_in_a_cancellation(world: World, point: str) -> None:
    for _ in range(RUNS):
        order = order_of(world, Shopper(), HANG_AFTER)
        killed_at(point, lambda order=order: undo.cancel(order.pk, "shopper", "test"))
        if point == "cancel.written":  # lost with the transaction: the shopper cancels again
            undo.cancel(order.pk, "shopper", "test")
        _ends_refunded(world, order)


@pytest.mark.parametrize("point", ["void.looked", "void.committed", "refund.called", "refund.committed"])
def test_a_worker_dies_while_giving_money_back(world: World, point: str) -> None:
    for _ in range(RUNS):
        order = order_of(world, Shopper(), HANG_AFTER)
        undo.cancel(order.pk, "shopper", "test")
        killed_at(point, drain(world))
        _ends_refunded(world, order)


@pytest.mark.parametrize("point", ["void.looked", "void.cancelled", "void.committed"])
def test_a_worker_dies_while_cancelling_at_the_gateway(world: World, point: str) -> None:
    for _ in range(RUNS):
        order = order_of(world, Shopper(), method=NEEDS_ACTION)
        undo.cancel(order.pk, "shopper", "test")
        killed_at(point, drain(world))
        time_passes(world)
        assert Payment.objects.get(order_key=order.number).status in {"VOIDED", "DECLINED"}
        assert {i["status"] for i in world.gateway.report(0)["intents"]} == {"canceled"}
    assert world.charges == []


@pytest.mark.parametrize("point", ["expire.checked", "expire.committed"])
def test_a_worker_dies_while_expiring_orders(world: World, point: str) -> None:
    for _ in range(RUNS):
        orders = [order_of(world, Shopper(), REFUSE) for _ in range(2)]

        def expire() -> None:
            with world.later(3700):
                undo.expire_overdue()

        killed_at(point, expire)
        # PostgreSQL takes a moment to see that a client is dead; what it had locked is left for the next round.
        end = time.monotonic() + 10
        while Order.objects.exclude(status="CANCELLED").exists() and time.monotonic() < end:
            expire()
        for order in orders:
            order.refresh_from_db()
            assert order.status == "CANCELLED"
            assert order.events.filter(kind="expire").count() == 1
    with world.later(3700):
        world.work()
    assert world.charges == []


@pytest.mark.parametrize("point", ["webhook.committed", "check.looked"])
def test_a_process_dies_about_a_webhook(world: World, point: str) -> None:
    for run in range(1, RUNS + 1):
        order = order_of(world, Shopper(), HANG_AFTER)
        intent = world.charges[-1]["intent"]
        event = WebhookEvent(f"evt_{run}", "payment_intent.succeeded", intent, order.number)

        def hear(event: WebhookEvent = event) -> None:
            incoming.receive(event)
            drain(world)()

        killed_at(point, hear)
        assert not incoming.receive(event)
        time_passes(world)
        order.refresh_from_db()
        assert order.status == "PAID"
        _one_charge_each(world, run)


def test_a_web_process_dies_while_another_card_takes_the_place_of_the_first(world: World) -> None:
    for _ in range(RUNS):
        shopper = Shopper()
        order = order_of(world, shopper, method=NEEDS_ACTION)
        path = f"/orders/{order.token}/pay/"
        killed_at("switch.cancelled", lambda p=path, s=shopper: s.post(p, {"method": VISA}))
        time_passes(world)
        order.refresh_from_db()
        assert order.status == "DECLINED"
        assert "Thank you" in shopper.post(path, {"method": VISA}).text
    assert len(world.charges) == RUNS


def test_a_worker_dies_after_sending_a_mail_and_the_order_is_untouched(world: World) -> None:
    """The one thing that happens twice: mail has no idempotency key. Its Message-ID stays the same."""
    order = order_of(world, Shopper())
    killed_at("mail.sent", drain(world))
    time_passes(world)
    order.refresh_from_db()
    assert order.status == "PAID"
    assert world.pending("notify") == 0


def _one_charge_each(world: World, count: int) -> None:
    assert len(world.charges) == count
    noted = set(Payment.objects.filter(status="SUCCEEDED").values_list("intent", flat=True))
    assert noted == {charge["intent"] for charge in world.charges}


def _ends_refunded(world: World, order: Order) -> None:
    time_passes(world)
    order.refresh_from_db()
    payment = Payment.objects.get(order_key=order.number)
    assert (order.status, payment.status) == ("CANCELLED", "REFUNDED")
    assert all(charge["refunded"] == charge["amount"] for charge in world.charges)
    assert payment.intent in {charge["intent"] for charge in world.charges}


def test_every_point_of_the_code_is_in_the_matrix() -> None:
    """What is listed is marked in the code, and what is listed is killed at above."""
    from pathlib import Path

    root = Path(__file__).resolve().parents[2]
    code = "".join(p.read_text() for folder in ("orders", "payments") for p in (root / folder).rglob("*.py"))
    here = Path(__file__).read_text()
    for point in crashpoints.POINTS:
        assert f'reached("{point}")' in code, point
        assert f'"{point}"' in here, point
