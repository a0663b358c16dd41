"""What a shopper is shown is what is charged (OP-13, OP-15, OP-16), and silly input changes nothing (OP-19)."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection

from orders.currencies import exponent
from orders.models import CartLine, Order, OutboxMessage, ProductSnapshot, StockItem
from orders.operations import quoting
from payments import mode
from resilience.deadline import Deadline
from tests.neighbours import REFUSE
from tests.world import Shopper, World


def choose(shopper: Shopper, currency: str) -> None:
    shopper.post("/currency/", {"currency": currency, "back": "/"})


def set_price(world: World, sku: str, minor: int) -> None:
    world.control(world.catalog, "PUT", f"/_sandbox/products/{sku}", {"price_minor": minor})


def set_rates(world: World, rates: dict[str, str | None]) -> None:
    world.control(world.rates, "PUT", "/_sandbox/rates", {"rates": rates})


def shown_total(text: str) -> Decimal:
    """The number behind the word Total on a page."""
    return Decimal(re.findall(r"Total\s*[^\d]*([\d,.]+)", text)[-1].replace(",", ""))


# OP-13


@pytest.mark.parametrize("deferred", [False, True], ids=["inline", "deferred"])
@pytest.mark.parametrize("currency", ["EUR", "USD", "JPY", "KWD"])
def test_the_gateway_gets_the_shown_total_in_the_currencys_own_minor_units(
    world: World, shopper: Shopper, currency: str, deferred: bool
) -> None:
    if deferred:
        mode.change("on", actor="duty", reason="maintenance")
    choose(shopper, currency)
    page = shopper.buy(quantity=3)
    mode.change("auto", actor="duty", reason="over")
    world.work()
    (charge,) = world.charges
    assert charge["currency"].upper() == currency
    assert charge["amount"] == shown_total(page.text) * 10 ** exponent(currency)
    assert "Thank you" in shopper.get(page.path).text


def test_an_unknown_currency_is_refused_and_not_given_two_decimals(world: World, shopper: Shopper) -> None:
    shopper.put_in_basket()
    page = shopper.submit(shopper.checkout_form(currency="XTS"))
    assert page.status == 422
    assert "This currency is not offered" in page.text
    assert Order.objects.count() == 0


# OP-15


@pytest.mark.parametrize("now_costs", [2950, 1950], ids=["up", "down"])
def test_a_price_that_changed_since_it_was_shown_is_asked_about_and_never_charged_silently(
    world: World, shopper: Shopper, now_costs: int
) -> None:
    shopper.put_in_basket()
    form = shopper.checkout_form()
    set_price(world, "ROPE-12", now_costs)
    page = shopper.submit(form)
    assert page.status == 409
    assert "The price changed since you saw it" in page.text
    assert "€24.50" in page.text
    assert f"€{now_costs / 100:.2f}" in page.text
    assert (Order.objects.count(), world.charges) == (0, [])
    confirmed = shopper.submit({**form, **page.forms["/checkout/"], "email": "ann@example.com"})
    assert "Thank you" in confirmed.text
    assert [charge["amount"] for charge in world.charges] == [now_costs]


def test_a_deferred_order_keeps_its_amount_whatever_price_and_rate_do_before_the_replay(
    world: World, shopper: Shopper
) -> None:
    mode.change("on", actor="duty", reason="maintenance")
    choose(shopper, "USD")
    page = shopper.buy()
    accepted = world.order().total_minor
    set_price(world, "ROPE-12", 9900)
    set_rates(world, {"USD": "1.30"})
    with world.later(4000):
        assert quoting.refresh_rates(Deadline.after_ms(5000))
    mode.change("auto", actor="duty", reason="over")
    world.work()
    assert [(charge["amount"], charge["currency"]) for charge in world.charges] == [(accepted, "usd")]
    assert shown_total(shopper.get(page.path).text) * 100 == accepted


@pytest.mark.parametrize(
    ("price", "quantity", "said"),
    [(0, 1, "There is nothing to pay for this basket"), (99_999_999, 2, "more than one payment can be")],
    ids=["nothing", "too much"],
)
def test_a_total_that_no_payment_can_have_is_told_before_anything_is_ordered(
    world: World, shopper: Shopper, price: int, quantity: int, said: str
) -> None:
    set_price(world, "ROPE-12", price)
    shopper.put_in_basket(quantity=quantity)
    page = shopper.submit(shopper.checkout_form())
    assert page.status == 422
    assert said in page.text
    assert (Order.objects.count(), CartLine.objects.count(), world.charges) == (0, 1, [])


# OP-16


def test_a_currency_switched_in_another_tab_never_charges_the_same_number_in_it(
    world: World, shopper: Shopper
) -> None:
    shopper.put_in_basket()
    tab_a = shopper.checkout_form()
    choose(shopper, "JPY")
    page = shopper.submit(tab_a)
    assert "Thank you" in page.text
    assert [(charge["amount"], charge["currency"]) for charge in world.charges] == [(2450, "eur")]


def test_an_awaiting_orders_currency_cannot_change(world: World, shopper: Shopper) -> None:
    mode.change("on", actor="duty", reason="maintenance")
    page = shopper.buy()
    choose(shopper, "JPY")
    mode.change("auto", actor="duty", reason="over")
    shopper.post(f"{page.path}pay/", {"method": "pm_card_visa", "currency": "JPY"})
    assert [(charge["amount"], charge["currency"]) for charge in world.charges] == [(2450, "eur")]


# OP-19

SILLY = [
    "0",
    "-1",
    "-2147483649",
    "2147483648",
    str(10**30),
    "1.5",
    "1e3",
    "",
    " ",
    "٣",
    "1\x00",
    "0x10",
    "+1",
]


def untouched() -> bool:
    """Whether nothing was ordered, promised, reserved or sold."""
    stock = StockItem.objects.get(sku="ROPE-12")
    return Order.objects.count() == OutboxMessage.objects.count() == 0 and (
        stock.on_hand,
        stock.reserved,
        stock.sold,
    ) == (100, 0, 0)


@pytest.mark.parametrize("quantity", SILLY, ids=ascii)
@pytest.mark.parametrize("where", ["/cart/add/", "/cart/update/"])
def test_a_silly_quantity_is_refused_with_the_limit_named_and_changes_nothing(
    world: World, shopper: Shopper, where: str, quantity: str
) -> None:
    shopper.put_in_basket(quantity=2)
    page = shopper.post(where, {"sku": "ROPE-12", "quantity": quantity})
    assert page.status == 422
    assert "whole number between 1 and" in page.text
    assert CartLine.objects.get().quantity == 2
    assert untouched()


def test_more_products_than_a_basket_takes_are_refused_with_the_limit_named(
    world: World, shopper: Shopper
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO orders_productsnapshot"
            " (sku, names, descriptions, price_minor, currency, image_svg, position, fetched_at)"
            " SELECT 'X-' || n, '{\"en\": \"x\"}', '{}', 100, 'EUR', '', n, now() FROM generate_series(1, 1000) n"
        )
    statuses = [shopper.post("/cart/add/", {"sku": f"X-{n}", "quantity": "1"}).status for n in range(1, 60)]
    assert 422 in statuses
    assert CartLine.objects.count() == statuses.index(422)
    assert "holds at most" in shopper.post("/cart/add/", {"sku": "X-99", "quantity": "1"}).text


def test_posted_prices_and_totals_are_ignored_or_refused(world: World, shopper: Shopper) -> None:
    shopper.post("/cart/add/", {"sku": "ROPE-12", "quantity": "1", "price": "1", "price_minor": "1"})
    assert CartLine.objects.get().price_minor == 2450
    cheap = shopper.submit(shopper.checkout_form(shown_total="1", total="1", price="1"))
    assert cheap.status == 409
    assert untouched()
    shopper.submit(
        shopper.checkout_form(total="1", total_minor="1", amount="1", price_minor="1", status="PAID")
    )
    assert [charge["amount"] for charge in world.charges] == [2450]


@pytest.mark.parametrize("total", ["", "-1", "1.5", "abc", str(10**30), "2450\x00", "24,50"], ids=ascii)
def test_an_unreadable_shown_total_brings_the_form_back_with_a_sentence(
    world: World, shopper: Shopper, total: str
) -> None:
    shopper.put_in_basket()
    page = shopper.submit(shopper.checkout_form(shown_total=total))
    assert page.status == 422
    assert "The amount of this form is not readable" in page.text
    assert untouched()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"email": "no address"}, "This does not look like an e-mail address."),
        ({"email": f"a@{64 * 'б'}.example"}, "This does not look like an e-mail address."),
        ({"email": ""}, "Please enter your e-mail address"),
        ({"email": "a@b.example\x00"}, "This does not look like an e-mail address."),
        ({"address": "x\x00y"}, "This address has characters that cannot be printed."),
        ({"address": "x" * 501}, "This address is too long for a parcel's label."),
        ({"method": "pm_other"}, "Please choose one of the ways to pay."),
        ({"method": "pm_card_visa\x00"}, "Please choose one of the ways to pay."),
        ({"token": "not-a-token"}, "This form was not complete, so nothing was ordered."),
        ({"token": ""}, "This form was not complete, so nothing was ordered."),
        ({"currency": "EUR\x00"}, "This currency is not offered."),
    ],
    ids=ascii,
)
def test_any_unusable_field_brings_the_form_back_with_what_was_typed_and_one_sentence(
    world: World, shopper: Shopper, changes: dict[str, Any], sentence: str
) -> None:
    shopper.put_in_basket()
    page = shopper.submit(shopper.checkout_form(**changes))
    assert page.status == 422
    assert "/checkout/" in page.forms
    assert page.text.count(sentence) == 1
    assert "Null characters" not in page.text
    assert untouched()
    assert "Thank you" in shopper.submit(shopper.checkout_form()).text


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/cart/add/", {"sku": "ROPE-12\x00", "quantity": "1"}),
        ("/cart/add/", {"sku": "no such", "quantity": "1"}),
        ("/cart/add/", {"sku": "NOT-THERE", "quantity": "1"}),
        ("/cart/remove/", {"sku": "\x00"}),
        ("/currency/", {"currency": "XXX"}),
        ("/currency/", {"currency": "\x00", "back": "\x00"}),
    ],
)
def test_a_form_made_by_hand_gets_a_4xx(
    world: World, shopper: Shopper, path: str, fields: dict[str, str]
) -> None:
    page = shopper.post(path, fields, follow=False)
    assert 400 <= page.status < 500
    assert untouched()


@pytest.mark.parametrize("path", ["/?q=%00", "/orders/%00/", "/cart/%00", "/?q=" + "x" * 3000])
def test_nul_bytes_and_long_words_in_an_address_are_no_error_of_ours(
    world: World, shopper: Shopper, path: str
) -> None:
    assert shopper.get(path).status in {200, 400, 404}


@pytest.mark.parametrize("cookie", ["sessionid", "holdfast_cart", "csrftoken", "django_language", "messages"])
def test_a_cookie_that_holds_a_nul_byte_is_refused(world: World, shopper: Shopper, cookie: str) -> None:
    shopper.client.cookies[cookie] = "abcdefgh\x00ijkl"
    assert shopper.get("/cart/").status == 400


@pytest.mark.parametrize("cookie", ["sessionid", "holdfast_cart", "csrftoken", "django_language", "messages"])
@pytest.mark.parametrize(
    "value", ["x", "x" * 5000, "'; DROP TABLE", "../../etc"], ids=["x", "long", "sql", "path"]
)
def test_a_cookie_made_by_hand_is_a_stranger_s(
    world: World, shopper: Shopper, cookie: str, value: str
) -> None:
    shopper.client.cookies[cookie] = value
    assert shopper.get("/cart/").status == 200


def test_a_form_whose_csrf_token_expired_comes_back_with_the_basket_and_what_was_typed(world: World) -> None:
    shopper = Shopper()
    from django.test import Client

    shopper.client = Client(enforce_csrf_checks=True)
    token = re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', shopper.get("/").html)[0]
    shopper.post("/cart/add/", {"sku": "ROPE-12", "quantity": "1", "csrfmiddlewaretoken": token})
    form = shopper.checkout_form(csrfmiddlewaretoken="x" * 64, email="typed@example.com")
    page = shopper.submit(form)
    assert page.status == 403
    assert "nothing was done yet" in page.text
    assert "typed@example.com" in page.html
    assert untouched()
    again = {**page.forms["/checkout/"], "method": "pm_card_visa"}
    assert "Thank you" in shopper.submit(again).text
    assert len(world.charges) == 1


def test_prices_noted_under_another_base_currency_are_neither_shown_nor_charged(
    world: World, shopper: Shopper, tune: Any
) -> None:
    shopper.put_in_basket("ROPE-12")
    form = shopper.checkout_form()
    tune(base_currency="USD", currencies=("USD", "EUR"))
    world.fault(world.catalog, REFUSE)
    shelf = shopper.get("/")
    assert (shelf.status, "Mooring rope" in shelf.text) == (200, False)
    page = shopper.submit(form)
    assert page.status == 503
    assert "Prices cannot be had at the moment" in shopper.get("/cart/").text
    assert not Order.objects.exists()
    assert world.charges == []


def listed(skus: list[str], total: int, offset: int) -> dict[str, Any]:
    """The catalog's answer to who reads its list from this place."""
    price = {"amount_minor": 2450, "currency": "EUR"}
    rows = [{"sku": sku, "name": sku, "description": "", "price": price, "image_svg": ""} for sku in skus]
    body = json.dumps({"products": rows, "missing": [], "total": total})
    return {"match": {"path_regex": rf"offset={offset}(&|$)"}, "effect": {"replace_body": body}}


def test_a_catalog_of_several_pages_is_shown_whole_and_one_that_breaks_off_changes_nothing(
    world: World,
) -> None:
    first, second = [f"A-{number}" for number in range(100)], ["A-99", "B-1", "B-2"]
    world.fault(world.catalog, listed(first, 102, 0), {"effect": {"status": 503}})
    assert not quoting.refresh_catalog(Deadline.after_ms(5000))
    assert ProductSnapshot.objects.filter(sku="ROPE-12").exists()
    world.fault(world.catalog, listed(first, 102, 0), listed(second, 102, 100))
    assert quoting.refresh_catalog(Deadline.after_ms(5000))
    assert set(ProductSnapshot.objects.values_list("sku", flat=True)) == {*first, *second}


def test_a_catalog_without_an_end_is_read_as_far_as_there_is_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quoting, "MOST_PRODUCTS", 2)
    world.fault(world.catalog, *(listed([f"A-{n}"], 10**9, n) for n in range(4)))
    assert quoting.refresh_catalog(Deadline.after_ms(5000))
    assert sorted(ProductSnapshot.objects.values_list("sku", flat=True)) == ["A-0", "A-1"]
