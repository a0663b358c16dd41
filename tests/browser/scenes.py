"""Every state of every page, brought about for real. Each scene leaves the browser at the page to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from django.contrib.auth import get_user_model
from django.core import signing
from playwright.sync_api import expect

from orders.guesses import WRONG_LINKS
from orders.models import CartLine, Order, ProductSnapshot
from orders.operations import undo
from orders.outbox import LeaseLostError
from payments import mode
from tests.browser.person import DECLINED, NEEDS_ACTION, Person
from tests.neighbours import HANG, HANG_AFTER, REFUSE
from tests.world import World

Scenes = Iterator[str]


def browsing(world: World, person: Person, tune: Callable[..., None]) -> Scenes:
    page = person.page
    page.goto("/")
    yield "catalog"
    page.goto("/?q=rope")
    yield "search"
    page.goto("/?q=submarine")
    yield "search-nothing"
    page.goto("/cart/")
    yield "basket-empty"
    world.stock("MUG-ANC", 0)
    world.fault(world.catalog, REFUSE)
    world.fault(world.rates, REFUSE)
    with world.later(2 * 3600):
        page.goto("/")
        person.choose_currency("USD")
        yield "catalog-stale"
    with world.later(2 * 24 * 3600):
        page.goto("/")
        yield "currency-not-offered"
    ProductSnapshot.objects.all().delete()
    page.goto("/")
    yield "catalog-down"


def basket(world: World, person: Person, tune: Callable[..., None]) -> Scenes:
    page = person.page
    person.put_in_basket("LANTERN-BR")
    person.put_in_basket("ROPE-12")
    yield "basket"
    page.locator("#quantity-ROPE-12").fill("1,5")
    page.locator("#change-ROPE-12").click()
    expect(person.alert).to_be_visible()
    yield "basket-wrong-quantity"
    CartLine.objects.filter(sku="LANTERN-BR").update(sku="GONE-1")
    page.goto("/cart/")
    yield "basket-gone"
    CartLine.objects.filter(sku="GONE-1").delete()
    world.fault(world.catalog, REFUSE)
    CartLine.objects.update(priced_at=_long_ago())
    ProductSnapshot.objects.update(fetched_at=_long_ago())
    page.goto("/cart/")
    yield "basket-no-prices"


def _long_ago() -> Any:
    from payments import dbtime

    return dbtime.read() - timedelta(days=1)


def checkout(world: World, person: Person, tune: Callable[..., None]) -> Scenes:
    page = person.page
    person.put_in_basket("ROPE-12")
    person.put_in_basket("MUG-ANC")
    person.go_to_checkout()
    yield "checkout"
    page.locator("#email").evaluate("field => field.type = 'text'")
    page.locator("#email").fill("ann at example")
    person.order()
    expect(person.alert).to_be_visible()
    yield "checkout-wrong"
    person.fill_in()
    world.control(world.catalog, "PUT", "/_sandbox/products/ROPE-12", {"price_minor": 2600})
    person.order()
    expect(person.alert).to_contain_text("You saw")
    yield "checkout-price-changed"
    world.stock("MUG-ANC", 0)
    person.order()
    expect(person.alert).to_contain_text("Sold out")
    yield "checkout-sold-out"
    world.stock("MUG-ANC", 9)
    yield from _checkout_in_trouble(world, person)
    tune(degraded_max_unpaid_orders=0)
    mode.change("on", actor="duty", reason="maintenance")
    page.goto("/checkout/")
    yield "checkout-degraded"
    person.fill_in()
    person.order()
    expect(person.alert).to_contain_text("cannot be taken")
    yield "limit-reached"
    mode.change("auto", actor="duty", reason="")


def _checkout_in_trouble(world: World, person: Person) -> Scenes:
    page = person.page
    page.goto("/")
    person.choose_currency("USD")
    world.fault(world.rates, REFUSE)
    world.fault(world.catalog, REFUSE)
    with world.later(600):
        from orders.models import RateRecord

        fetched = _long_ago() + timedelta(hours=10)
        RateRecord.objects.update(fetched_at=fetched, provider_date=fetched.date())
        page.goto("/checkout/")
        yield "checkout-stale"
    page.context.clear_cookies(name="csrftoken")
    person.fill_in()
    person.order()
    expect(person.alert).to_contain_text("open for too long")
    yield "checkout-old-form"
    world.heal()


def orders(world: World, person: Person, tune: Callable[..., None]) -> Scenes:
    tune(checkout_budget_ms=1500)
    get_user_model()._default_manager.create_user("ann@example.com", "ann@example.com", "a long secret")
    person.log_in("ann@example.com", "a long secret")
    person.page.goto("/account/orders/")
    yield "orders-empty"
    person.buy("LANTERN-BR")
    yield "order-paid"
    person.buy("ROPE-12", method=DECLINED)
    yield "order-declined"
    person.buy("ROPE-12", method=NEEDS_ACTION)
    yield "order-action-required"
    world.fault(world.gateway, REFUSE)
    person.buy("BELL-15")
    yield "order-awaiting"
    person.page.get_by_role("button", name="Cancel this order").click()
    expect(person.state).to_contain_text("Cancelled")
    yield "order-cancelled"
    person.buy("BELL-15")
    with world.later(3700):
        undo.expire_overdue()
        person.look_again()
        yield "order-expired"
    world.fault(world.gateway, HANG)
    person.buy("BELL-15")
    yield "order-confirming"
    world.heal()
    world.fault(world.gateway, HANG_AFTER)
    person.buy("BOOTS-SEA")
    world.fault(world.gateway, {"match": {"path": "/v1/refunds"}, "effect": {"status": 503}})
    person.page.get_by_role("button", name="Cancel this order").click()
    world.work()
    person.look_again()
    expect(person.state).to_contain_text("on its way back")
    yield "order-refunding"
    world.heal()
    with world.later(120):
        world.work()
    person.look_again()
    expect(person.state).to_contain_text("returned in full")
    yield "order-refunded"
    world.fault(world.gateway, HANG_AFTER)
    person.buy("BELL-15")
    refused = {"error": {"code": "charge_disputed", "type": "invalid_request_error"}}
    world.fault(world.gateway, {"match": {"path": "/v1/refunds"}, "effect": {"status": 400, "body": refused}})
    person.page.get_by_role("button", name="Cancel this order").click()
    world.work()
    person.look_again()
    expect(person.state).to_contain_text("A person of ours is looking")
    yield "order-return-in-doubt"
    world.heal()
    with patch("orders.operations.pay.take_money", side_effect=LeaseLostError):
        person.buy("MUG-ANC")
        yield "order-placed"
    with world.later(120):
        world.work()
    person.page.goto("/account/orders/")
    yield "orders"


def account(world: World, person: Person, tune: Callable[..., None]) -> Scenes:
    page = person.page
    page.goto("/account/login/")
    yield "log-in"
    person.log_in("nobody@example.com", "wrong")
    expect(person.alert).to_be_visible()
    yield "log-in-wrong"
    page.goto("/account/join/")
    yield "sign-up"
    page.goto("/account/password/")
    yield "password-forgotten"
    page.locator("#id_email").fill("nobody@example.com")
    page.locator("main button[type=submit]").click()
    yield "link-sent"
    get_user_model()._default_manager.create_user("ann@example.com", "ann@example.com", "a long secret")
    person.log_in("ann@example.com", "a long secret")
    person.put_in_basket()
    page.goto("/checkout/")
    page.context.clear_cookies(name="sessionid")
    person.fill_in()
    person.order()
    expect(person.alert).to_contain_text("no longer logged in")
    yield "session-expired"
    page.goto(f"/account/join/{signing.dumps('bea@example.com', salt='holdfast.join')}/")
    yield "choose-password"
    page.locator("#id_new_password1").fill("12345")
    page.locator("#id_new_password2").fill("12345")
    page.locator("main button[type=submit]").click()
    expect(person.alert).to_be_visible()
    yield "choose-password-wrong"
    page.goto("/account/join/used-up/")
    yield "link-used-up"


def errors(world: World, person: Person, tune: Callable[..., None]) -> Scenes:
    page = person.page
    page.goto("/nowhere/")
    yield "not-found"
    person.put_in_basket()
    page.context.clear_cookies(name="csrftoken")
    page.locator("#change-ROPE-12").click()
    expect(page.locator("main")).to_contain_text("open for too long")
    yield "old-form"
    while WRONG_LINKS.count("127.0.0.1"):
        pass
    page.goto("/orders/wrong/")
    yield "too-many-wrong-links"
    WRONG_LINKS.forget()
    from django.db import OperationalError

    with patch("orders.browse.cart_of", side_effect=OperationalError):
        page.goto("/cart/")
        yield "storage-unavailable"
    with patch("orders.browse.cart_of", side_effect=ValueError):
        page.goto("/cart/")
        yield "something-went-wrong"


def demo(world: World, person: Person, tune: Callable[..., None]) -> Scenes:
    page = person.page
    person.buy("MUG-ANC")
    page.goto("/_demo/")
    yield "demo"
    tune(checkout_budget_ms=1500)
    page.get_by_role("button", name="Let the gateway hang").click()
    expect(page.locator("#live")).to_contain_text("Takes requests and never answers")
    other = Person(page.context.new_page())
    other.buy("LANTERN-BR")
    expect(page.locator("#live")).to_contain_text("being confirmed")
    yield "demo-broken"
    world.heal()
    assert Order.objects.count() == 2


ALL = {
    "browsing": browsing,
    "basket": basket,
    "checkout": checkout,
    "orders": orders,
    "account": account,
    "errors": errors,
    "demo": demo,
}
