"""One form makes one order, however often and whenever it is sent (OP-11)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client

from orders import queries, tasks
from orders.models import CartLine, Order, OutboxMessage, StockItem
from orders.operations.place import BasketChangedError, Checkout, EmptyCartError, check_out, find_existing
from orders.shopper import CART_COOKIE
from payments import mode
from resilience.deadline import Deadline
from tests.neighbours import HANG_AFTER, REFUSE
from tests.world import VISA, Shopper, World

SLOW = {"match": {"method": "POST"}, "effect": {"latency_ms": 1500}}


def submit_eight_times_at_once(shopper: Shopper, form: dict[str, Any]) -> set[tuple[int, str]]:
    barrier = threading.Barrier(8)

    def submit(_: int) -> tuple[int, str]:
        twin = Client()
        twin.cookies = shopper.client.cookies
        barrier.wait(10)
        try:
            response = twin.post("/checkout/", form)
            return response.status_code, response.headers.get("Location", "")
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        return set(pool.map(submit, range(8)))


@pytest.mark.parametrize("trouble", ["none", "slow", "lost answer", "refused", "degraded"])
def test_eight_equal_submits_at_once_make_one_order_one_reserve_and_one_charge(
    world: World, shopper: Shopper, tune: Any, trouble: str
) -> None:
    tune(checkout_budget_ms=3000)
    shopper.put_in_basket()
    form = shopper.checkout_form()
    if trouble == "degraded":
        mode.change("on", actor="duty", reason="maintenance")
    elif trouble != "none":
        world.fault(world.gateway, {"slow": SLOW, "lost answer": HANG_AFTER, "refused": REFUSE}[trouble])
    answers = submit_eight_times_at_once(shopper, form)
    assert len(answers) == 1
    status, place = answers.pop()
    assert status == 302
    assert place == f"/orders/{world.order().token}/"
    stock = StockItem.objects.get(sku="ROPE-12")
    assert stock.reserved + stock.sold == 1
    world.heal()
    mode.change("auto", actor="duty", reason="over")
    world.work(5)
    assert "Thank you" in shopper.get(place).text
    assert len(world.charges) == 1
    assert Order.objects.count() == OutboxMessage.objects.filter(kind="charge").count() == 1


def test_a_form_sent_again_later_leads_to_its_order_even_with_another_basket(
    world: World, shopper: Shopper
) -> None:
    shopper.put_in_basket()
    form = shopper.checkout_form()
    first = shopper.submit(form)
    with world.later(30):
        assert shopper.submit(form).path == first.path
        shopper.put_in_basket("LANTERN-BR")
        assert shopper.submit(form).path == first.path
    assert (Order.objects.count(), len(world.charges)) == (1, 1)


def test_a_form_that_somebody_else_sends_makes_no_order_and_shows_none(
    world: World, shopper: Shopper
) -> None:
    shopper.put_in_basket()
    form = shopper.checkout_form()
    page = shopper.submit(form)
    stranger = Shopper()
    stranger.put_in_basket()
    seen = stranger.submit(form)
    assert page.path not in (seen.path, seen.html)
    assert Order.objects.count() == 1
    assert len(world.charges) == 1


def test_a_worker_leaves_a_charge_alone_while_the_request_that_placed_it_may_be_calling(
    world: World, shopper: Shopper
) -> None:
    shopper.put_in_basket()
    form = shopper.checkout_form()
    world.fault(world.gateway, SLOW)
    done = threading.Event()

    def work_on() -> None:
        try:
            while not done.wait(0.05):
                tasks.drain("payment")
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        worker = pool.submit(work_on)
        page = shopper.submit(form)
        done.set()
        worker.result(20)
    assert "Thank you" in page.text
    assert len(world.money_calls) == 1


def test_two_forms_of_one_basket_sent_at_once_make_one_order(world: World, shopper: Shopper) -> None:
    """Both requests have read the full basket before either has made its order."""
    shopper.put_in_basket()
    seen = queries.find_cart(shopper.client.cookies[CART_COOKIE].value, None)
    assert seen is not None
    form = shopper.checkout_form()
    wish = Checkout(uuid4(), seen.owner, 2450, "EUR", "ann@example.com", VISA, "en", None)
    assert shopper.submit(form).status == 200
    with pytest.raises(EmptyCartError):
        check_out(wish, seen, Deadline.after_ms(5000))
    assert Order.objects.count() == len(world.charges) == 1
    assert find_existing(wish.token, wish.owner) is None


def test_a_basket_that_changed_under_the_request_is_not_ordered_and_kept(
    world: World, shopper: Shopper
) -> None:
    shopper.put_in_basket()
    seen = queries.find_cart(shopper.client.cookies[CART_COOKIE].value, None)
    assert seen is not None
    shopper.put_in_basket("LANTERN-BR")
    wish = Checkout(uuid4(), seen.owner, 2450, "EUR", "ann@example.com", VISA, "en", None)
    with pytest.raises(BasketChangedError):
        check_out(wish, seen, Deadline.after_ms(5000))
    assert Order.objects.count() == 0
    assert CartLine.objects.count() == 2


def test_an_old_tab_orders_no_other_goods_of_the_same_price(world: World, shopper: Shopper) -> None:
    shopper.put_in_basket()
    old = shopper.checkout_form()
    shopper.put_in_basket("LANTERN-BR")
    old["shown_total"] = shopper.checkout_form()["shown_total"]
    page = shopper.submit(old)
    assert page.status == 409
    assert "Your basket has changed since you saw it." in page.text
    assert Order.objects.count() == 0
    assert shopper.submit(dict(page.forms["/checkout/"], email="ann@example.com", method=VISA)).status == 200
    assert Order.objects.get().lines.count() == 2
