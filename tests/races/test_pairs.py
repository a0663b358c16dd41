"""Pay now, replay, expiry, cancellation and webhook against each other, each pair in both orders.

The first is stopped at the point where it knows but has not yet said; the second then does all it can (or waits for a
lock); then the first goes on. However it ends, it ends right.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections

from orders import outbox, tasks
from orders.models import Order
from orders.operations import undo
from orders.operations.pay import pay_now
from payments import crashpoints, incoming
from payments.webhooks import WebhookEvent
from resilience.deadline import Deadline
from tests.neighbours import HANG_AFTER, REFUSE
from tests.world import VISA, Shopper, World

LATE = 3700
"""Seconds after which the reserve has run out."""
STOPS_AT = {
    "pay now": "charge.called",
    "replay": "charge.called",
    "expiry": "expire.checked",
    "cancel": "cancel.written",
    "webhook": "check.looked",
}


class Stage:
    """Lets the first actor run to its point and no further until told."""

    def __init__(self, world: World, order: Order) -> None:
        self.world, self.order = world, order
        self.arrived, self.go_on = threading.Event(), threading.Event()
        self.point = ""

    def hook(self, name: str) -> None:
        if threading.current_thread().name == "first" and name == self.point and not self.arrived.is_set():
            self.arrived.set()
            assert self.go_on.wait(20)

    def start(self, name: str, actor: Callable[[], Any]) -> threading.Thread:
        def run() -> None:
            try:
                actor()
            finally:
                if name == "first":
                    self.arrived.set()
                connections.close_all()

        thread = threading.Thread(target=run, name=name)
        thread.start()
        return thread

    def actor(self, kind: str) -> Callable[[], Any]:
        return {
            "pay now": lambda: pay_now(self.order.token, VISA, Deadline.after_ms(5000)),
            "replay": self.replay,
            "expiry": undo.expire_overdue,
            "cancel": self.cancel,
            "webhook": self.webhook,
        }[kind]

    def replay(self) -> None:
        for lease in outbox.claim(outbox.PAYMENT, 5):
            outbox.deliver(lease)

    def cancel(self) -> None:
        from payments.states import IllegalTransitionError

        try:
            undo.cancel(self.order.pk, "shopper", "test")
        except IllegalTransitionError:
            return

    def webhook(self) -> None:
        intent = self.world.gateway.report(0)["intents"][0]["id"]
        incoming.receive(WebhookEvent("evt_race", "payment_intent.succeeded", intent, self.order.number))
        tasks.drain("payment")


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(STOPS_AT, 2)))
def test_whoever_comes_first_the_order_ends_right_and_is_charged_at_most_once(
    world: World, tune: Any, first: str, second: str
) -> None:
    tune(checkout_budget_ms=2500, void_look_seconds=0.1)
    # A webhook speaks of money that was taken; the others meet an order that has not been charged.
    world.fault(world.gateway, HANG_AFTER if "webhook" in (first, second) else REFUSE)
    Shopper().buy()
    world.heal()
    stage = Stage(world, Order.objects.get())
    stage.point = STOPS_AT[first]
    with crashpoints.armed(stage.hook):
        with world.later(LATE if first == "expiry" else 15):
            one = stage.start("first", stage.actor(first))
            assert stage.arrived.wait(20)
        with world.later(LATE if "expiry" in (first, second) else 15):
            two = stage.start("second", stage.actor(second))
            two.join(0.3)  # done, or waiting for the lock that the first one holds
            stage.go_on.set()
            one.join(20)
            two.join(20)
    assert not one.is_alive()
    assert not two.is_alive()
    for seconds in (40, 80, 120, LATE + 60, LATE + 120, LATE + 180, LATE + 240):
        with world.later(seconds):
            world.work(1)
            undo.expire_overdue()
    order = Order.objects.get()
    kept = [charge for charge in world.charges if not charge["refunded"]]
    assert (order.status, len(kept)) in {("PAID", 1), ("CANCELLED", 0)}
    assert len(world.charges) <= 1
    assert outbox.stats()["payment"].pending == 0
    assert world.dead_letters() == []
