"""Baskets that add up, in every currency (scenarios OP-13, OP-14)."""

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orders.currencies import UnknownCurrency, exponent
from orders.pricing import Item, Money, RateTooOld, price, unit_price
from payments.minor_units import charge_step, to_wire
from tests.pricing.rates_of import NOW, rate

ITEMS = st.lists(
    st.builds(
        Item,
        sku=st.text("ABC", min_size=1, max_size=3),
        name=st.just("x"),
        quantity=st.integers(1, 50),
        unit=st.builds(Money, st.integers(0, 40_000), st.just("EUR")),
    ),
    min_size=1,
    max_size=20,
)
RATE = st.decimals("0.000001", "99999", places=6).map(lambda value: value.normalize())


@given(items=ITEMS, currency=st.sampled_from(["EUR", "USD", "JPY", "KWD", "ISK", "IDR"]), value=RATE)
@settings(max_examples=1000, deadline=None)
def test_lines_always_add_up_to_the_total_and_the_total_is_what_is_charged(items, currency, value):
    used = None if currency == "EUR" else rate(currency, value)
    quote = price(items, currency, used)
    assert all(line.total == line.unit * line.quantity for line in quote.lines)
    assert sum(line.total.amount for line in quote.lines) == quote.total.amount
    assert -quote.total.amount.as_tuple().exponent == exponent(currency)
    assert quote.total.amount * 10 ** exponent(currency) == quote.total.minor
    assert quote.total.minor % charge_step(currency) == 0
    assert to_wire(quote.total.minor, currency) >= quote.total.minor
    assert price(items, currency, used) == quote


@given(minor=st.integers(1, 40_000), value=RATE)
@settings(max_examples=500, deadline=None)
def test_a_unit_price_is_within_half_a_step_of_the_exact_one_and_never_nothing(minor, value):
    for currency in ("JPY", "KWD", "USD"):
        step = charge_step(currency)
        priced = unit_price(Money(minor, "EUR"), currency, rate(currency, value))
        exact = Decimal(minor) / 100 * value * 10 ** exponent(currency)
        assert priced.minor >= step
        assert abs(priced.minor - exact) <= Decimal(step) / 2 or priced.minor == step


def test_the_last_digit_of_a_price_in_kwd_is_always_nought():
    quote = price([Item("A", "Rope", 3, Money(1999, "EUR"))], "KWD", rate("KWD", "0.3333"))
    assert quote.lines[0].unit.amount == Decimal("6.660")  # 6.662… rounded to what can be charged
    assert quote.total.amount == Decimal("19.980")


def test_in_the_base_currency_no_rate_is_used_and_prices_stay():
    quote = price([Item("A", "Rope", 2, Money(1999, "EUR"))], "EUR", None)
    assert (quote.total, quote.rate) == (Money(3998, "EUR"), None)


def test_a_quote_names_the_oldest_snapshot_it_used():
    old = NOW - timedelta(minutes=10)
    items = [
        Item("A", "a", 1, Money(1, "EUR")),
        Item("B", "b", 1, Money(1, "EUR"), as_of=NOW),
        Item("C", "c", 1, Money(1, "EUR"), as_of=old),
    ]
    quote = price(items, "EUR", None)
    assert quote.price_as_of == old
    assert [line.as_of for line in quote.lines] == [None, NOW, old]
    assert price(items[:1], "EUR", None).price_as_of is None


@pytest.mark.parametrize("quantity", [0, -1, 1.5, True, "2", None])
def test_a_quantity_that_is_no_positive_integer_has_no_price(quantity):
    with pytest.raises(ValueError, match="quantity"):
        price([Item("A", "a", quantity, Money(1, "EUR"))], "EUR", None)


def test_huge_quantities_stay_exact():
    quote = price([Item("A", "a", 10**30, Money(1999, "EUR"))], "EUR", None)
    assert quote.total.minor == 1999 * 10**30
    assert str(quote.total.amount) == "1999" + "0" * 28 + ".00"


def test_without_the_rate_that_leads_there_nothing_is_priced():
    items = [Item("A", "a", 1, Money(1, "EUR"))]
    for used in (None, rate("USD", "1.1"), rate("JPY", "150", base="USD")):
        with pytest.raises(ValueError, match="rate"):
            price(items, "JPY", used)


def test_a_rate_too_old_to_show_prices_nothing():
    old = rate("JPY", "160", may_show=False, may_charge=False)
    with pytest.raises(RateTooOld):
        price([Item("A", "a", 1, Money(1, "EUR"))], "JPY", old)


def test_an_empty_basket_and_a_negative_price_are_refused():
    with pytest.raises(ValueError, match="empty"):
        price([], "EUR", None)
    with pytest.raises(ValueError, match="negative"):
        price([Item("A", "a", 1, Money(-1, "EUR"))], "EUR", None)


def test_money_takes_no_floats_no_bools_and_no_unknown_currency():
    for minor in (1.0, True, "1", Decimal(1)):
        with pytest.raises(TypeError):
            Money(minor, "EUR")
    with pytest.raises(UnknownCurrency):
        Money(1, "DOGE")
    with pytest.raises(TypeError):
        Money(1, "EUR") * 1.5
    with pytest.raises(TypeError):
        Money(1, "EUR") + 1


def test_money_of_two_currencies_is_never_added():
    assert Money(1, "EUR") + Money(2, "EUR") == 3 * Money(1, "EUR")
    with pytest.raises(ValueError, match="cannot add USD to EUR"):
        Money(1, "EUR") + Money(1, "USD")
