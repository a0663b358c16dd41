"""Answers and rows that are not what anybody asked for: nothing is touched that is not certainly ours, and nothing is
closed that is not certainly settled.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from orders import outbox
from orders.models import Order, OutboxMessage
from orders.operations import sweep
from orders.operations.settle import give_back
from orders.operations.undo import cancel_by_token
from orders.queries import find_order
from orders.wording import Situation
from payments import crashpoints, dbtime
from payments.checks import close_check
from payments.clients import background_gateway
from payments.models import MoneyCheck, Payment
from payments.operations import latest
from payments.outcomes import Charge, Refused, Succeeded
from payments.queries import open_checks
from resilience.deadline import Deadline
from tests.journeys.test_webhooks import _bank, told
from tests.neighbours import HANG_AFTER, REFUSE
from tests.world import DECLINED, NEEDS_ACTION, VISA, Shopper, World

CREATE = {"method": "POST", "path": "/v1/payment_intents"}
SEARCH = {"method": "GET", "path": "/v1/payment_intents/search"}


def charged(reference: str, amount_minor: int, key: str) -> str:
    """Money that somebody else's request takes at the same gateway."""
    charge = Charge(reference, amount_minor, "EUR", VISA, key)
    outcome = background_gateway().charge(charge, Deadline.after_ms(5000))
    assert isinstance(outcome, Succeeded)
    return outcome.intent


def kept(world: World, reference: str) -> int:
    """What the gateway still has of it."""
    return sum(one["amount"] - one["refunded"] for one in world.charges if one["reference"] == reference)


def test_an_answer_about_somebody_elses_payment_never_gives_their_money_back(
    world: World, shopper: Shopper, tune: Any
) -> None:
    tune(checkout_budget_ms=2000, void_look_seconds=0.1)
    foreign = charged("FOREIGN-1", 2450, "foreign")
    lie = {"id": foreign, "metadata": {"order_reference": "FOREIGN-1"}}
    world.fault(world.gateway, {"match": CREATE, "effect": {"lie": lie}})
    shopper.buy()
    world.heal()
    assert Payment.objects.get().intent is None
    cancel_by_token(Order.objects.get().token, "shopper")
    for seconds in (40, 80, 120):
        with world.unaudited(), world.later(seconds):
            world.work(1)
    assert kept(world, "FOREIGN-1") == 2450
    assert kept(world, Order.objects.get().number) == 0


@pytest.mark.parametrize("status", [400, 404])
def test_a_refusal_after_a_lost_answer_is_no_decline(
    world: World, shopper: Shopper, tune: Any, status: int
) -> None:
    tune(checkout_budget_ms=1500)
    world.fault(world.gateway, HANG_AFTER)
    page = shopper.buy()
    error = {"error": {"type": "invalid_request_error", "code": "resource_missing", "message": "no"}}
    world.fault(
        world.gateway,
        {"match": SEARCH, "effect": {"lie": {"data": []}}},
        {"match": CREATE, "effect": {"status": status, "body": error}},
    )
    with world.later(40):
        world.work(1)
    assert Payment.objects.get().status == "UNKNOWN"
    assert "Please do not pay again" in shopper.get(page.path).text
    world.heal()
    with world.later(4000):
        world.work(1)
    assert len(world.charges) == 1


def test_a_first_refusal_is_told_at_once(world: World, shopper: Shopper) -> None:
    charge = Charge("ORDER-1", 100, "EUR", VISA, "first")
    error = {"error": {"type": "invalid_request_error", "code": "parameter_invalid", "message": "no"}}
    world.fault(world.gateway, {"match": CREATE, "effect": {"status": 400, "body": error}})
    outcome = background_gateway().charge(charge, Deadline.after_ms(5000))
    assert isinstance(outcome, Refused)


def test_another_amount_than_asked_is_a_case_for_a_person_and_not_half_given_back(
    world: World, shopper: Shopper, tune: Any
) -> None:
    tune(checkout_budget_ms=1500, outbox_max_attempts=2, void_look_seconds=0.1)
    world.fault(world.gateway, {"match": CREATE, "effect": {"hang": True}})
    shopper.buy()
    world.heal()
    order = Order.objects.get()
    charged(order.number, 99900, "wrong")
    cancel_by_token(order.token, "shopper")
    for seconds in (40, 5000, 10000, 15000):
        with world.unaudited(), world.later(seconds):
            world.work(1)
    assert kept(world, order.number) == 99900
    assert [check.order_key for check in open_checks()] == [order.number]


def test_a_refund_that_fails_after_all_is_a_case_for_a_person(world: World, lost: Order) -> None:
    cancel_by_token(lost.token, "shopper")
    taken = world.charges[0]
    pending = {"id": "re_late", "object": "refund", "status": "pending", "payment_intent": taken["intent"]}
    answer = {**pending, "amount": taken["amount"], "currency": "eur"}
    world.fault(
        world.gateway,
        {"match": {"method": "POST", "path": "/v1/refunds"}, "effect": {"status": 200, "body": answer}},
    )
    with world.later(60):
        world.work()
    assert Payment.objects.get().status == "REFUNDED"
    assert not open_checks()
    world.heal()
    event = {"kind": "refund.failed", "payment_intent": taken["intent"]}
    assert told("re_late", None, **event) == 200
    with world.unaudited(), world.later(70):
        world.work(1)
    assert ["has failed" in check.reason for check in open_checks()] == [True]
    assert page(lost) is Situation.RETURN_IN_DOUBT
    close_check(MoneyCheck.objects.get().pk, "ann", "sent by bank transfer")
    assert page(lost) is Situation.REFUNDED


def test_a_refund_that_the_gateway_refuses_is_not_called_on_its_way(world: World, lost: Order) -> None:
    cancel_by_token(lost.token, "shopper")
    refused = {"status": 400, "body": {"error": {"code": "charge_disputed", "type": "invalid_request_error"}}}
    world.fault(world.gateway, {"match": {"method": "POST", "path": "/v1/refunds"}, "effect": refused})
    assert page(lost) is Situation.CANCELLED
    with world.later(60):
        world.work()
    assert [letter.kind for letter in outbox.dead_letters()] == ["refund"]
    assert page(lost) is Situation.RETURN_IN_DOUBT
    world.heal()


def page(order: Order) -> Situation:
    found = find_order(order.token)
    assert found is not None
    return found.situation


@pytest.mark.parametrize("odd", ["due_at = '-infinity'", "due_at = '0044-03-15 BC'", "attempts = 2147483647"])
def test_a_row_with_impossible_values_stops_no_other(world: World, shopper: Shopper, odd: str) -> None:
    world.fault(world.gateway, REFUSE)
    shopper.buy()
    world.heal()
    order = Order.objects.get()
    common = {"due_at": order.created_at, "available_at": order.created_at, "created_at": order.created_at}
    OutboxMessage.objects.create(kind="dance", destination="payment", dedup="odd", order=order, **common)
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE orders_outboxmessage SET {odd} WHERE dedup = 'odd'")
    world.work()
    assert Order.objects.get().status == "PAID"
    assert [letter.kind for letter in outbox.dead_letters()] == ["dance"]


def test_a_message_put_into_a_far_future_is_due_after_the_next_sweep(world: World, shopper: Shopper) -> None:
    world.fault(world.gateway, REFUSE)
    shopper.buy()
    world.heal()
    OutboxMessage.objects.filter(kind="charge").update(available_at="2099-01-01T00:00:00Z")
    world.work()
    assert Order.objects.get().status == "AWAITING_PAYMENT"
    assert sweep.sweep() == 1
    world.work()
    assert Order.objects.get().status == "PAID"


@pytest.mark.parametrize("rate", ["0", "-1", "nan", "1e-9"])
def test_dead_letters_do_not_come_back_at_a_senseless_rate(world: World, shopper: Shopper, rate: str) -> None:
    world.fault(world.gateway, REFUSE)
    shopper.buy()
    world.heal()
    OutboxMessage.objects.filter(kind="charge").update(status="DEAD")
    with pytest.raises(CommandError, match="rate"):
        call_command("outbox", "redrive", "--all", f"--rate={rate}")
    assert OutboxMessage.objects.get(kind="charge").status == "DEAD"
    OutboxMessage.objects.filter(kind="charge").update(status="PENDING")


def test_a_second_payment_beside_one_that_paid_is_found_out_and_given_back(
    world: World, shopper: Shopper, tune: Any
) -> None:
    tune(checkout_budget_ms=1500, void_look_seconds=0.1)
    page = shopper.buy(method=DECLINED)
    first = Payment.objects.get()
    world.fault(world.gateway, HANG_AFTER)
    shopper.post(f"{page.path}pay/", {"method": VISA})
    world.heal()
    assert Payment.objects.get(number=2).status == "UNKNOWN"
    # The first card's decline was false: its money comes to light after all.
    Payment.objects.filter(pk=first.pk).update(status="SUCCEEDED", intent="pi_first", reason="")
    Order.objects.update(status="PAID")
    with world.later(60), world.unaudited():
        world.work()
    assert Payment.objects.get(number=2).status == "REFUNDED"
    assert kept(world, Payment.objects.get(number=2).reference) == 0


def test_what_is_given_back_of_a_second_charge_is_no_case_of_the_paid_order(
    world: World, shopper: Shopper
) -> None:
    shopper.buy()
    order = Order.objects.get()
    extra = charged(order.number, order.total_minor, "extra")
    assert told(extra, order.number, event="evt_2") == 200
    world.work()
    assert kept(world, order.number) == order.total_minor
    assert told("ch_1", order.number, event="evt_3", kind="charge.refunded", payment_intent=extra) == 200
    world.work()
    assert not MoneyCheck.objects.exists()


def test_an_order_cancelled_while_its_shopper_takes_another_card_stays_cancelled(
    world: World, shopper: Shopper
) -> None:
    page = shopper.buy(method=NEEDS_ACTION)
    order = Order.objects.get()

    def cancels(name: str) -> None:
        if name == "switch.cancelled":
            cancel_by_token(order.token, "shopper")

    with crashpoints.armed(cancels):
        answer = shopper.post(f"{page.path}pay/", {"method": VISA})
    assert answer.status == 200
    world.work()
    assert Order.objects.get().status == "CANCELLED"
    assert world.charges == []


def test_a_double_charge_is_a_violation_until_a_refund_of_that_very_charge_is_promised(
    world: World, shopper: Shopper
) -> None:
    shopper.buy()
    order, payment = Order.objects.get(), Payment.objects.get()
    second = charged(payment.reference, payment.amount_minor, "another-key")
    now = order.created_at
    for intent, found in (("pi_of_long_ago", ["I1"]), (second, [])):
        OutboxMessage.objects.create(
            kind="refund",
            destination="payment",
            status="DEAD",
            order=order,
            dedup=intent,
            payload={"payment": str(payment.id), "intent": intent},
            due_at=now,
            available_at=now,
            created_at=now,
        )
        assert [violation.invariant for violation in world.violations()] == found


def test_money_that_the_gateway_tells_of_but_does_not_show_is_looked_for_until_it_does(
    world: World, shopper: Shopper
) -> None:
    shopper.buy(method=NEEDS_ACTION)
    order, payment = Order.objects.get(), Payment.objects.get()
    assert payment.intent is not None
    _bank(world, "pass")
    lie = {"status": "canceled", "amount_received": 0, "latest_charge": None}
    world.fault(world.gateway, {"match": {"method": "GET"}, "effect": {"lie": lie}})
    assert told(payment.intent, payment.reference) == 200
    for seconds in (1, 70, 140):
        with world.unaudited(), world.later(seconds):
            world.work(1)
    assert order.number in {
        message.order.number for message in OutboxMessage.objects.filter(status="PENDING")
    }
    world.heal()
    for seconds in (210, 280):
        with world.later(seconds):
            world.work()
    order.refresh_from_db()
    assert (order.status == "PAID") == bool(kept(world, order.number))


def test_a_charge_told_under_the_name_of_none_is_not_given_back_as_if_it_were_a_second_one(
    world: World, shopper: Shopper
) -> None:
    world.fault(world.gateway, {"match": CREATE, "effect": {"lie": {"id": "pi_nobody"}}})
    shopper.buy()
    world.heal()
    order = Order.objects.get()
    assert order.status == "PAID"
    [taken] = world.charges
    assert told(taken["intent"], order.number) == 200
    for seconds in (1, 70):
        with world.later(seconds):
            world.work()
    assert kept(world, order.number) == order.total_minor
    assert [letter.kind for letter in outbox.dead_letters()] == ["refund"]
    assert [check.order_key for check in open_checks()] == [order.number]


def test_a_second_charge_with_the_longest_of_ids_is_given_back_too(world: World, shopper: Shopper) -> None:
    shopper.buy()
    order, longest = Order.objects.get(), "pi_" + "x" * 252
    with world.unaudited(), transaction.atomic():
        for _twice in range(2):
            give_back(order, latest(order.number), "worker", dbtime.read(), intent=longest)
        assert OutboxMessage.objects.get(kind="refund").payload["intent"] == longest
        transaction.set_rollback(True)
