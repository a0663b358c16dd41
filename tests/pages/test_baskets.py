"""5,000 baskets: what is shown adds up, and the gateway gets exactly the number that was shown (OP-13, OP-14)."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.utils import translation
from hypothesis import given
from hypothesis import settings as rules
from hypothesis import strategies as st

from orders.currencies import exponent
from orders.models import CartLine, Order
from orders.pricing import Item, Money, Quote, price
from orders.templatetags.shop import money
from payments import clients
from payments.gateway import Gateway
from payments.minor_units import from_wire
from payments.outcomes import Charge, Succeeded
from resilience.deadline import Deadline
from resilience.http import HttpResponse
from tests.neighbours import REFUSE
from tests.pricing.rates_of import rate
from tests.world import Shopper, World

ITEMS = st.lists(
    st.builds(
        Item,
        sku=st.just("A"),
        name=st.just("x"),
        quantity=st.integers(1, 50),
        unit=st.builds(Money, st.integers(1, 40_000), st.just("EUR")),
    ),
    min_size=1,
    max_size=20,
)
RATES = st.decimals("0.000001", "9999", places=6).map(lambda value: value.normalize())
CURRENCIES = ["EUR", "USD", "JPY", "KWD", "HUF", "ISK"]
_SEPARATORS = {"en": (",", "."), "ru": ("\xa0", ","), "de": (".", ","), "fr": ("\u202f", ",")}


def read_back(shown: str, currency: str, language: str) -> int:
    """The minor units that a person would read off an amount."""
    thousands, point = _SEPARATORS[language]
    digits = "".join(re.findall(r"[\d.,\xa0\u202f]", shown)).strip("\xa0\u202f.")
    number = Decimal(digits.replace(thousands, "").replace(point, "."))
    assert -number.as_tuple().exponent == exponent(currency), shown  # type: ignore[operator]
    return int(number.scaleb(exponent(currency)))


class FarEnd:
    """Takes the gateway client's requests and keeps what is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str]] = []

    def request(self, method: str, path: str, *, form: dict[str, str], **more: Any) -> HttpResponse:
        amount, currency = int(form["amount"]), form["currency"]
        self.asked.append((amount, currency.upper()))
        intent = {
            "id": "pi_1",
            "object": "payment_intent",
            "status": "succeeded",
            "amount": amount,
            "amount_received": amount,
            "currency": currency,
            "metadata": {"order_reference": form["metadata[order_reference]"]},
        }
        return HttpResponse(200, intent, {})


@given(
    items=ITEMS,
    currency=st.sampled_from(CURRENCIES),
    value=RATES,
    language=st.sampled_from(sorted(_SEPARATORS)),
)
@rules(max_examples=5000, deadline=None)
def test_what_is_shown_adds_up_and_is_what_the_gateway_gets(
    items: list[Item], currency: str, value: Decimal, language: str
) -> None:
    quote = price(items, currency, None if currency == "EUR" else rate(currency, value))
    shown = _shown(quote, language)
    assert sum(shown[:-1]) == shown[-1] == quote.total.minor
    far_end = FarEnd()
    gateway = Gateway(far_end, clients.inline_gateway().chain)  # type: ignore[arg-type]
    charge = Charge("HF-1", quote.total.minor, currency, "pm_card_visa", "key")
    assert isinstance(gateway.charge(charge, Deadline.after_ms(60_000)), Succeeded)
    [(amount, sent_in)] = far_end.asked
    assert (from_wire(amount, currency), sent_in) == (shown[-1], currency)


def _shown(quote: Quote, language: str) -> list[int]:
    with translation.override(language):
        amounts = [*(line.total for line in quote.lines), quote.total]
        return [read_back(money(amount), amount.currency, language) for amount in amounts]


@pytest.mark.parametrize(("currency", "places"), [("EUR", 2), ("JPY", 0), ("KWD", 3), ("USD", 2)])
def test_a_deferred_order_keeps_its_digits_whatever_price_and_rate_do_meanwhile(
    world: World, shopper: Shopper, currency: str, places: int
) -> None:
    world.fault(world.gateway, REFUSE)
    shopper.put_in_basket("ROPE-12", 7)
    shopper.put_in_basket("MUG-ANC", 3)
    shopper.post("/currency/", {"currency": currency, "back": "cart"})
    page = shopper.submit(shopper.checkout_form())
    order = Order.objects.get()
    world.control(world.catalog, "PUT", "/_sandbox/products/ROPE-12", {"price_minor": 9999})
    world.control(
        world.rates, "PUT", "/_sandbox/rates", {"rates": {"USD": "1.5", "JPY": "200", "KWD": "0.5"}}
    )
    world.heal()
    with world.later(timedelta(minutes=2).total_seconds()):
        world.work()
        later = shopper.get(page.path)
    assert "Thank you" in later.text
    assert _table(later.html) == _table(page.html)
    [charge] = world.charges
    assert from_wire(charge["amount"], currency) == order.total_minor
    assert exponent(currency) == places
    assert sum(line.total_minor for line in order.lines.all()) == order.total_minor


def _table(html: str) -> str:
    found = re.search(r'<table class="lines">.*?</table>', html, re.DOTALL)
    assert found
    return found[0]


def test_what_the_shop_no_longer_has_can_be_taken_out_but_not_counted(world: World) -> None:
    shopper = Shopper()
    shopper.put_in_basket("ROPE-12")
    CartLine.objects.update(sku="GONE-1")
    page = shopper.get("/cart/").html
    assert "No longer in the shop" in page
    assert "/cart/remove/" in page
    assert "/cart/update/" not in page


def test_a_basket_of_which_nothing_is_in_the_shop_any_more_is_not_called_empty(world: World) -> None:
    shopper = Shopper()
    shopper.put_in_basket("ROPE-12")
    form = shopper.checkout_form()
    CartLine.objects.update(sku="GONE-1")
    form["basket"] = ""
    page = shopper.submit(form)
    assert page.path == "/cart/"
    assert "None of this is in the shop any more" in page.text
    assert "No longer in the shop" in page.text
    assert "empty" not in page.text
    assert Order.objects.count() == 0
