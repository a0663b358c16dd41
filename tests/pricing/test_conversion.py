"""Conversion, cross rates and the direction of a rate (scenario OP-23)."""

from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orders.currencies import UnknownCurrency, exponent
from orders.pricing import Freshness, Money, convert, cross, unit_price
from tests.pricing.rates_of import NOW, rate

MARKET = {"USD": "1.10", "JPY": "160", "KWD": "0.33", "IDR": "17500"}
RATES = {code: rate(code, value) for code, value in MARKET.items()}


def by_hand(amount, factor, currency):
    """An independent calculation: plain Decimal with many digits."""
    with localcontext() as context:
        context.prec = 80
        whole = Decimal(amount) * Decimal(factor)
        return int(whole.scaleb(exponent(currency)).quantize(Decimal(1), ROUND_HALF_UP))


@pytest.mark.parametrize("code", MARKET)
def test_a_hundred_euros_convert_as_by_hand_in_both_directions(code):
    there = convert(Money(10_000, "EUR"), RATES[code])
    assert there == Money(by_hand(100, MARKET[code], code), code)
    hundred = Money(100 * 10 ** exponent(code), code)
    with localcontext() as context:
        context.prec = 80
        assert convert(hundred, RATES[code]).minor == by_hand(100, 1 / Decimal(MARKET[code]), "EUR")


@pytest.mark.parametrize(("start", "end"), [("USD", "JPY"), ("KWD", "IDR"), ("JPY", "KWD"), ("IDR", "USD")])
def test_a_cross_rate_uses_each_of_the_two_rates_once(start, end):
    hundred = Money(100 * 10 ** exponent(start), start)
    with localcontext() as context:
        context.prec = 80
        factor = Decimal(MARKET[end]) / Decimal(MARKET[start])
    assert convert(hundred, cross(RATES, start, end)).minor == by_hand(100, factor, end)


@given(
    minor=st.integers(1, 10**9),
    value=st.decimals("0.001", "1", places=6).filter(bool),
    pair=st.sampled_from([("KWD", "EUR"), ("EUR", "JPY"), ("KWD", "JPY")]),
)
@settings(max_examples=300, deadline=None)
def test_there_and_back_is_within_one_minor_unit_where_the_other_currency_has_the_finer_steps(
    minor, value, pair
):
    fine, coarse = pair
    # One step of the fine currency is worth no more than one of the coarse one, so nothing is lost on the way.
    step_ratio = 10 ** (exponent(fine) - exponent(coarse))
    there = rate(fine, Decimal(step_ratio) / value.normalize() if value else 1, base=coarse)
    back = convert(convert(Money(minor, coarse), there), there)
    assert abs(back.minor - minor) <= 1


def test_half_a_unit_is_rounded_away_from_zero():
    half = rate("JPY", "0.5", base="KRW")
    assert convert(Money(1, "KRW"), half) == Money(1, "JPY")
    assert convert(Money(-1, "KRW"), half) == Money(-1, "JPY")
    assert convert(Money(2, "KRW"), half) == Money(1, "JPY")


def test_another_base_for_the_same_market_changes_a_shown_price_by_no_more_than_rounding():
    from_usd = {code: cross(RATES, "USD", code) for code in ("EUR", "JPY", "KWD", "IDR")}
    for euros in (1999, 349, 40_000, 5):
        dollars = convert(Money(euros, "EUR"), RATES["USD"])
        for code in ("JPY", "KWD", "IDR"):
            before = unit_price(Money(euros, "EUR"), code, RATES[code])
            after = unit_price(dollars, code, from_usd[code])
            one_cent = convert(Money(1, "USD"), from_usd[code]).minor
            # Half a cent from the price list in dollars, and one step of the target currency.
            assert abs(before.minor - after.minor) <= one_cent / 2 + 10


def test_a_cross_rate_is_as_old_and_as_weak_as_the_weaker_of_the_two():
    rates = {
        "USD": rate("USD", "1.10"),
        "JPY": rate(
            "JPY",
            "160",
            provider_date=date(2026, 11, 20),
            fetched_at=NOW - timedelta(days=2),
            freshness=Freshness.STALE,
            may_charge=False,
        ),
    }
    for mixed in (cross(rates, "USD", "JPY"), cross(rates, "JPY", "USD")):
        assert mixed.freshness is Freshness.STALE
        assert (mixed.may_charge, mixed.may_show) == (False, True)
        assert mixed.provider_date == date(2026, 11, 20)
        assert mixed.fetched_at == NOW - timedelta(days=2)


def test_a_cross_rate_may_start_or_end_at_the_base_itself():
    assert cross(RATES, "EUR", "USD").value == Decimal("1.10")
    assert convert(Money(110, "USD"), cross(RATES, "USD", "EUR")) == Money(100, "EUR")


@pytest.mark.parametrize(("start", "end"), [("USD", "GBP"), ("GBP", "USD"), ("GBP", "CHF")])
def test_a_missing_rate_is_an_error_and_never_one(start, end):
    with pytest.raises(LookupError):
        cross(RATES, start, end)


def test_rates_to_different_bases_are_not_crossed():
    with pytest.raises(LookupError):
        cross({"USD": RATES["USD"], "JPY": rate("JPY", "190", base="GBP")}, "USD", "JPY")


def test_there_is_no_rate_of_a_currency_to_itself():
    with pytest.raises(ValueError, match="itself"):
        cross(RATES, "USD", "USD")
    with pytest.raises(ValueError, match="two currencies"):
        rate("EUR", "1")


def test_a_rate_converts_no_third_currency():
    with pytest.raises(ValueError, match="cannot convert GBP"):
        convert(Money(1, "GBP"), RATES["USD"])


@pytest.mark.parametrize("value", ["0", "-1", "NaN", "Infinity", "1e-9", "1e9", "1." + "1" * 70])
def test_a_rate_with_an_impossible_value_cannot_be_made(value):
    with pytest.raises(ValueError, match="value of a rate"):
        rate("USD", value)


def test_a_rate_needs_known_currencies():
    with pytest.raises(UnknownCurrency):
        rate("DOGE", "1")
