"""Each row of the table of compensation in docs/explanation/money.md, and what keeps the outbox in order."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from orders import housekeeping, outbox
from orders.models import Order, OutboxMessage
from orders.operations import sweep, undo
from payments.models import MoneyCheck, Payment
from payments.queries import open_checks
from tests.neighbours import HANG, HANG_AFTER, REFUSE
from tests.world import NEEDS_ACTION, Shopper, World

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "money.md"


ROWS: dict[str, Callable[[World, Shopper], Any]] = {
    "NEW, nobody at it": lambda w, s: (w.fault(w.gateway, REFUSE), s.buy()),
    "UNKNOWN, the gateway knows nothing": lambda w, s: (w.fault(w.gateway, HANG), s.buy()),
    "UNKNOWN, money was taken": lambda w, s: (w.fault(w.gateway, HANG_AFTER), s.buy()),
    "ACTION_REQUIRED": lambda w, s: s.buy(method=NEEDS_ACTION),
    "money comes in after the end": lambda w, s: (w.fault(w.gateway, HANG_AFTER), s.buy()),
}


def _rows() -> dict[str, str]:
    text = PAGE.read_text().split("<!-- compensation -->")[1].split("<!-- /compensation -->")[0]
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in text.strip().splitlines()[2:]]
    return {payment: end for payment, _, end in cells}


def test_the_page_has_the_rows_that_are_played_here() -> None:
    assert set(_rows()) == set(ROWS)


@pytest.mark.parametrize("row", ROWS)
def test_an_order_that_has_ended_gives_back_or_takes_nothing(
    world: World, shopper: Shopper, tune: Any, row: str
) -> None:
    tune(checkout_budget_ms=1500, void_look_seconds=0.1)
    ROWS[row](world, shopper)
    world.heal()
    if row.startswith("money comes"):
        with world.later(3700):
            undo.expire_overdue()
    else:
        undo.cancel(Order.objects.get().pk, "shopper", "test")
    start = 3700 if row.startswith("money comes") else 0
    for seconds in (40, 80, 120, 160, 200, 240):
        with world.later(start + seconds):
            world.work(1)
    assert Order.objects.get().status == "CANCELLED"
    status = Payment.objects.get().status
    # An intent that is found cancelled is noted as declined if the look came from elsewhere.
    assert status in {_rows()[row], "DECLINED" if row == "ACTION_REQUIRED" else _rows()[row]}
    assert all(charge["refunded"] == charge["amount"] for charge in world.charges)


def test_a_key_that_the_gateway_may_have_forgotten_is_never_charged_with_again(
    world: World, shopper: Shopper, tune: Any
) -> None:
    tune(checkout_budget_ms=1500, payment_key_seconds=60, outbox_max_attempts=2)
    world.fault(world.gateway, HANG)
    shopper.buy()
    world.heal()
    for seconds in (100, 110, 120):
        with world.later(seconds):
            world.work(1)
    assert world.charges == []
    assert len(world.money_calls) == 1
    assert [check.reason.endswith("key_too_old") for check in open_checks()] == [True]
    assert "Please do not pay again" in shopper.get(f"/orders/{Order.objects.get().token}/").text


def test_what_lost_its_message_is_picked_up_and_paid(world: World, shopper: Shopper) -> None:
    world.fault(world.gateway, REFUSE)
    shopper.buy()
    world.heal()
    OutboxMessage.objects.filter(kind="charge").delete()
    assert sweep.sweep() == 1
    assert sweep.sweep() == 0
    world.work()
    assert Order.objects.get().status == "PAID"


@pytest.mark.parametrize("end", ["PAID", "CANCELLED", "DECLINED"])
@pytest.mark.parametrize("payment", ["UNKNOWN", "SUCCEEDED"])
def test_the_sweep_finds_the_one_ended_order_with_a_loose_payment_without_reading_the_others(
    world: World, shopper: Shopper, end: str, payment: str
) -> None:
    for _ in range(5):
        shopper.buy()
    found = Order.objects.all()[2]
    Order.objects.filter(pk=found.pk).update(status=end)
    Payment.objects.filter(order_key=found.number).update(status=payment)
    OutboxMessage.objects.all().delete()
    with CaptureQueriesContext(connection) as captured, world.unaudited():
        undone = list(sweep._suspects(2))
    assert undone == ([] if (end, payment) == ("PAID", "SUCCEEDED") else [found.pk])
    reads = [query["sql"] for query in captured if 'FROM "orders_order"' in query["sql"]]
    assert all(" LIMIT 2" in sql for sql in reads), reads


def test_messages_that_nobody_can_deliver_are_put_before_people_at_once(
    world: World, shopper: Shopper
) -> None:
    world.fault(world.gateway, REFUSE)
    shopper.buy()
    order = Order.objects.get()
    common = {"due_at": order.created_at, "available_at": order.created_at, "created_at": order.created_at}
    OutboxMessage.objects.create(kind="dance", destination="payment", dedup="1", order=order, **common)
    OutboxMessage.objects.create(
        kind="void", destination="payment", dedup="2", order=order, payload=[1], **common
    )
    OutboxMessage.objects.create(kind="refund", destination="payment", dedup="3", **common)
    OutboxMessage.objects.create(kind="notify", destination="pigeon", dedup="4", order=order, **common)
    world.heal()
    world.work()
    assert sweep.sweep() == 1
    assert {letter.kind for letter in outbox.dead_letters()} == {"dance", "void", "refund", "notify"}
    assert MoneyCheck.objects.count() >= 2
    assert Order.objects.get().status == "PAID"


def test_delivered_messages_are_forgotten_and_all_others_kept(
    world: World, shopper: Shopper, tune: Any
) -> None:
    tune(outbox_keep_seconds=3600)
    shopper.buy()
    world.work()
    assert housekeeping.purge() == 0
    waiting = OutboxMessage.objects.filter(status="DONE").first()
    assert waiting is not None
    OutboxMessage.objects.filter(pk=waiting.pk).update(status="DEAD")
    with world.later(timedelta(hours=2).total_seconds()):
        assert housekeeping.purge() == 1
    assert OutboxMessage.objects.count() == 1
