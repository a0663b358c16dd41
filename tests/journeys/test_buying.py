"""A shopper's way, healthy and with a broken gateway; the page and the gateway's books are both read."""

from __future__ import annotations

from typing import Any

import pytest

from orders.models import Order, OutboxMessage, StockItem
from orders.operations import undo
from payments import dbtime, mode
from payments.models import Payment
from tests.neighbours import DOWN, HANG, HANG_AFTER, REFUSE
from tests.world import DECLINED, NEEDS_ACTION, VISA, Shopper, World

CREATE = {"method": "POST", "path": "/v1/payment_intents"}


def test_a_healthy_checkout_is_paid_at_once_and_charged_once(world: World, shopper: Shopper) -> None:
    page = shopper.buy(quantity=2)
    assert page.path.startswith("/orders/")
    assert "Thank you. Your payment has arrived" in page.text
    assert [charge["amount"] for charge in world.charges] == [world.order().total_minor] == [4900]
    stock = StockItem.objects.get(sku="ROPE-12")
    assert (stock.on_hand, stock.reserved, stock.sold) == (98, 0, 2)


def test_a_hung_gateway_leaves_an_accepted_order_that_says_not_to_pay_again(
    world: World, shopper: Shopper, tune: Any
) -> None:
    tune(checkout_budget_ms=1500)
    world.fault(world.gateway, HANG)
    page = shopper.buy()
    assert "Please do not pay again" in page.text
    assert world.order().status == "AWAITING_PAYMENT"
    assert Payment.objects.get().status == "UNKNOWN"
    assert world.charges == []
    world.heal()
    world.work()
    assert "Thank you. Your payment has arrived" in shopper.get(page.path).text
    assert len(world.charges) == 1


def test_a_charge_whose_answer_was_lost_is_found_again_and_not_repeated(
    world: World, shopper: Shopper, tune: Any
) -> None:
    tune(checkout_budget_ms=1500)
    world.fault(world.gateway, HANG_AFTER)
    page = shopper.buy()
    assert "Please do not pay again" in page.text
    assert len(world.charges) == 1
    world.heal()
    world.work()
    assert "Thank you" in shopper.get(page.path).text
    assert len(world.charges) == 1
    assert len(world.money_calls) == 1


@pytest.mark.parametrize("fault", [REFUSE, DOWN], ids=["refused", "503"])
def test_an_unreachable_gateway_does_not_stop_orders_and_the_money_is_taken_once_later(
    world: World, shopper: Shopper, fault: dict[str, Any]
) -> None:
    world.fault(world.gateway, fault)
    page = shopper.buy()
    assert page.path.startswith("/orders/")
    assert "Accepted" in page.text
    assert "Your goods are reserved until" in page.text
    world.heal()
    world.work()
    assert "Thank you" in shopper.get(page.path).text
    assert len(world.charges) == 1


def test_a_declined_card_frees_the_goods_and_another_card_pays(world: World, shopper: Shopper) -> None:
    page = shopper.buy(method=DECLINED)
    assert "Your card was declined and nothing was taken" in page.text
    assert StockItem.objects.get(sku="ROPE-12").reserved == 0
    assert world.charges == []
    again = shopper.post(f"{page.path}pay/", {"method": "pm_card_visa"})
    assert "Thank you" in again.text
    assert len(world.charges) == 1


def test_a_card_that_needs_a_confirmation_says_so_and_is_not_charged(world: World, shopper: Shopper) -> None:
    page = shopper.buy(method=NEEDS_ACTION)
    assert "Your bank asks you to confirm this payment" in page.text
    assert "Confirm with your bank" in page.text
    assert world.charges == []


def test_in_degraded_mode_nothing_is_called_and_the_page_says_so_before(
    world: World, shopper: Shopper
) -> None:
    mode.change("on", actor="duty", reason="gateway maintenance")
    shopper.put_in_basket()
    before = shopper.get("/checkout/")
    assert "Payments are delayed" in before.text
    assert "Order now, pay later" in before.text
    page = shopper.submit(shopper.checkout_form())
    assert "nothing has been taken yet" in page.text
    world.work()
    assert world.money_calls == []
    mode.change("auto", actor="duty", reason="")
    with world.later(10):
        world.work()
    assert "Thank you" in shopper.get(page.path).text
    assert len(world.charges) == 1


def test_an_open_breaker_defers_orders_by_itself_and_closes_again(
    world: World, shopper: Shopper, tune: Any
) -> None:
    from dataclasses import replace

    from django.conf import settings

    tune(
        payment=replace(
            settings.HOLDFAST.payment, breaker_window=2, breaker_min_calls=2, breaker_open_seconds=60
        )
    )
    world.fault(world.gateway, DOWN)
    for _ in range(2):
        Shopper().buy()
    calls = len(world.money_calls)
    page = shopper.buy()
    assert len(world.money_calls) == calls
    assert "nothing has been taken yet" in page.text
    world.heal()
    with world.later(5):
        world.work()
    assert {charge["reference"] for charge in world.charges} == {o.number for o in Order.objects.all()}


def test_a_cancelled_order_is_never_charged(world: World, shopper: Shopper) -> None:
    world.fault(world.gateway, REFUSE)
    page = shopper.buy()
    cancelled = shopper.post(f"{page.path}cancel/", {})
    assert "This order is cancelled. No payment will be taken for it from now on." in cancelled.text
    world.heal()
    world.work()
    assert world.money_calls == []
    assert StockItem.objects.get(sku="ROPE-12").reserved == 0


def test_money_that_was_taken_for_a_cancelled_order_goes_back_and_the_shopper_is_told(
    world: World, shopper: Shopper, tune: Any
) -> None:
    tune(checkout_budget_ms=1500)
    world.fault(world.gateway, HANG_AFTER)
    page = shopper.buy()
    world.heal()
    shopper.post(f"{page.path}cancel/", {})
    world.work()
    assert "your money has been returned in full" in shopper.get(page.path).text
    assert [charge["refunded"] for charge in world.charges] == [2450]


def test_an_order_that_is_not_paid_in_time_is_cancelled_and_frees_its_goods(
    world: World, shopper: Shopper
) -> None:
    world.fault(world.gateway, REFUSE)
    page = shopper.buy()
    with world.later(3700):
        assert undo.expire_overdue() == 1
        assert undo.expire_overdue() == 0
        world.heal()
        world.work()
    assert "not paid in time" in shopper.get(page.path).text
    assert StockItem.objects.get(sku="ROPE-12").reserved == 0
    assert world.charges == []


def test_mails_tell_what_is_true_when_they_are_sent(
    world: World, shopper: Shopper, mailoutbox: list[Any]
) -> None:
    world.fault(world.gateway, REFUSE)
    shopper.buy()
    world.heal()
    with world.later(5):
        world.work()
    subjects = [mail.subject for mail in mailoutbox]
    assert len(subjects) == 1
    assert "is paid" in subjects[0]
    superseded = OutboxMessage.objects.get(kind="notify", payload__notice="accepted")
    assert superseded.status == "CANCELLED"


def test_another_card_while_the_bank_waits_and_the_gateway_hangs_begins_nothing_and_says_so(
    world: World, shopper: Shopper
) -> None:
    page = shopper.buy(method=NEEDS_ACTION)
    world.fault(world.gateway, HANG)
    told = shopper.post(f"{page.path}pay/", {"method": "pm_card_visa"})
    assert "could not be called off just now, so no other was begun" in told.text
    assert "One more step" in told.text
    assert world.charges == []


@pytest.mark.parametrize(
    ("first", "fault"),
    [
        (DECLINED, REFUSE),
        (NEEDS_ACTION, {"match": {"path_regex": "payment_intents$"}, "effect": {"status": 401}}),
    ],
    ids=["after a decline", "instead of the bank's question"],
)
def test_another_card_that_could_not_be_sent_waits_as_long_as_any_order_and_its_shopper_is_told(
    world: World, shopper: Shopper, mailoutbox: list[Any], first: str, fault: dict[str, Any]
) -> None:
    page = shopper.buy(method=first)
    world.work()
    world.fault(world.gateway, fault)
    with world.later(600):
        told = shopper.post(f"{page.path}pay/", {"method": VISA})
        world.work(1)
        assert "We will take the payment within the hour" in told.text
        left = world.order().reserve_until - dbtime.read()
    assert left.total_seconds() > 3500
    assert [mail.subject.split()[-1] for mail in mailoutbox][1:] == ["follows"]
    again = shopper.post(f"{page.path}pay/", {"method": VISA})
    assert "We will take the payment within the hour" in again.text
    world.heal()
    with world.later(700):
        world.work()
    assert "Thank you" in shopper.get(page.path).text
    assert [mail.subject.split()[-1] for mail in mailoutbox][1:] == ["follows", "paid"]
    assert len(world.charges) == 1


def test_each_decline_is_told_of_when_the_shopper_is_no_longer_there(
    world: World, shopper: Shopper, mailoutbox: list[Any]
) -> None:
    page = shopper.buy(method=DECLINED)
    world.work()
    world.fault(world.gateway, REFUSE)
    shopper.post(f"{page.path}pay/", {"method": DECLINED})
    world.work(1)
    world.heal()
    with world.later(120):
        world.work()
    assert [mail.subject.split()[-1] for mail in mailoutbox] == ["declined", "follows", "declined"]
    assert len({mail.extra_headers["Message-ID"] for mail in mailoutbox}) == 3


def test_a_request_that_the_gateway_refuses_is_not_called_a_declined_card(
    world: World, shopper: Shopper, mailoutbox: list[Any]
) -> None:
    error = {"error": {"type": "invalid_request_error", "code": "parameter_invalid", "message": "no"}}
    world.fault(world.gateway, {"match": CREATE, "effect": {"status": 400, "body": error}})
    page = shopper.buy()
    assert "Payment could not be taken" in page.text
    assert "card was declined" not in page.text
    assert "Payment declined" not in page.text
    world.work()
    assert [mail.subject.split()[-1] for mail in mailoutbox] == ["taken"]
    assert "nothing was taken" in mailoutbox[0].body
    world.heal()
    assert "Thank you" in shopper.post(f"{page.path}pay/", {"method": VISA}).text
    assert len(world.charges) == 1
