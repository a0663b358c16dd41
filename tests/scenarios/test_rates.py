"""Absurd rates are never used (OP-22); a failure is not remembered longer than the outage (OP-24)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from orders import tasks
from orders.models import Order, RateRecord
from orders.operations import quoting
from resilience.deadline import Deadline
from tests.neighbours import DOWN, REFUSE
from tests.world import Shopper, World


def refresh() -> bool:
    return quoting.refresh_rates(Deadline.after_ms(5000))


def stored(currency: str) -> RateRecord:
    return RateRecord.objects.get(quote=currency)


def in_dollars(shopper: Shopper) -> None:
    shopper.post("/currency/", {"currency": "USD", "back": "catalog"})


def says(world: World, *rows: dict[str, Any] | str) -> None:
    """The rates service answers with these rows, whatever it is asked for."""
    body = json.dumps(rows) if not (rows and isinstance(rows[0], str)) else rows[0]
    world.fault(world.rates, {"effect": {"replace_body": body}})


ABSURD = ["0", "-1", "NaN", "Infinity", "null", '"1,0842"', '"1 084.2"', "1e-9", "1084.2", "[]", "{}", "true"]


@pytest.mark.parametrize("value", [*ABSURD, None], ids=str)
def test_an_absurd_rate_is_never_stored_and_the_last_good_one_stays_marked_stale(
    world: World, shopper: Shopper, value: str | None
) -> None:
    before = stored("USD")
    yen = stored("JPY").fetched_at
    with world.later(4000):
        world.control(world.rates, "PUT", "/_sandbox/rates", {"rates": {"USD": value}})
        assert refresh()
        in_dollars(shopper)
        page = shopper.buy()
    assert stored("USD").value == before.value
    assert stored("USD").fetched_at == before.fetched_at
    assert stored("JPY").fetched_at > yen
    assert "the exchange rate of" in page.text
    assert "It could not be refreshed since" in page.text
    order = world.order()
    assert order.rate_stale
    assert order.rate_value == before.value
    assert [charge["amount"] for charge in world.charges] == [order.total_minor]
    assert order.total_minor > 0


def test_an_answer_with_another_base_than_asked_for_changes_nothing(world: World) -> None:
    before = stored("USD")
    date = before.provider_date.isoformat()
    says(world, {"date": date, "base": "CHF", "quote": "USD", "rate": 1.1})
    with world.later(4000):
        assert not refresh()
    assert stored("USD").fetched_at == before.fetched_at


def test_a_currency_given_twice_with_two_rates_is_believed_neither_time(world: World) -> None:
    before = stored("USD")
    row = {"date": before.provider_date.isoformat(), "base": "EUR", "quote": "USD"}
    says(world, {**row, "rate": 1.1}, {**row, "rate": 1.2})
    with world.later(4000):
        refresh()
    assert stored("USD").value == before.value


@pytest.mark.parametrize(
    "body", ["[]", "{}", "null", "", "<html>"], ids=["list", "object", "null", "none", "page"]
)
def test_an_empty_answer_counts_as_a_failure(world: World, body: str) -> None:
    before = stored("USD")
    world.fault(world.rates, {"effect": {"replace_body": body}})
    with world.later(4000):
        assert not refresh()
    assert stored("USD").fetched_at == before.fetched_at


def test_without_any_good_rate_a_currency_is_not_offered_and_the_page_says_why(
    world: World, shopper: Shopper
) -> None:
    RateRecord.objects.all().delete()
    world.fault(world.rates, REFUSE)
    shopper.put_in_basket()
    for path in ("/", "/cart/"):
        page = shopper.get(path)
        assert "USD, JPY, KWD are not offered at the moment: there is no usable exchange rate" in page.text
    in_dollars(shopper)
    form = shopper.checkout_form()
    assert form["currency"] == "EUR"
    refused = shopper.submit({**form, "currency": "USD"})
    assert refused.status == 409
    assert Order.objects.count() == 0
    assert "Thank you" in shopper.submit(form).text
    assert [(charge["currency"], charge["amount"]) for charge in world.charges] == [("eur", 2450)]


def test_a_rate_too_old_to_charge_by_shows_prices_for_orientation_and_one_too_old_to_show_none(
    world: World, shopper: Shopper
) -> None:
    in_dollars(shopper)
    shopper.put_in_basket()
    world.fault(world.rates, REFUSE)
    with world.later(86_400 + 60):
        page = shopper.get("/")
        assert "Prices in USD are for orientation only: orders are taken in EUR." in page.text
        assert re.search(r"\$\d", page.text)
        assert "€" in shopper.get("/cart/").text
        form = shopper.checkout_form()
        assert form["currency"] == "EUR"
        assert "Thank you" in shopper.submit(form).text
    with world.later(864_000 + 60):
        page = shopper.get("/")
        assert "orientation" not in page.text
        assert not re.search(r"\$\d", page.text)
    assert [charge["currency"] for charge in world.charges] == ["eur"]


def test_during_an_outage_the_old_rate_is_shown_with_its_time_and_after_it_a_fresh_one_unmarked(
    world: World, shopper: Shopper
) -> None:
    in_dollars(shopper)
    shopper.put_in_basket()
    fresh = stored("USD").fetched_at
    world.fault(world.rates, DOWN)
    for hours in (2, 3, 4):
        with world.later(hours * 3600):
            tasks.refresh_rates()
            page = shopper.get("/checkout/")
        assert "may differ from today's" in page.text
        assert f"since {fresh.day} {fresh:%b %Y %H:%M} UTC" in page.text
    world.heal()
    with world.later(5 * 3600):
        tasks.refresh_rates()
        page = shopper.get("/checkout/")
    assert "may differ" not in page.text
    assert "Exchange rate of" in page.text


def test_past_the_limit_of_age_a_currency_is_no_longer_quoted(world: World, shopper: Shopper) -> None:
    in_dollars(shopper)
    shopper.put_in_basket()
    form = shopper.checkout_form()
    assert form["currency"] == "USD"
    world.fault(world.rates, DOWN)
    with world.later(90_000):
        page = shopper.submit(form)
    assert page.status == 409
    assert "no usable exchange rate" in page.text
    assert Order.objects.count() == 0


def test_a_new_process_in_an_outage_knows_the_last_rate(world: World, shopper: Shopper) -> None:
    in_dollars(shopper)
    world.fault(world.rates, REFUSE)
    from orders import clients

    clients.reset()  # nothing of it is kept in the process
    with world.later(4000):
        page = shopper.buy()
    assert "It could not be refreshed since" in page.text
    assert len(world.charges) == 1
