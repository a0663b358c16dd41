"""ISO 4217 exponents and the gateway's deviations from them (scenario OP-13)."""

import pytest
from babel.core import get_global

from orders.currencies import EXPONENTS, UnknownCurrency, exponent
from payments.minor_units import NotChargeable, charge_step, from_wire, to_wire


@pytest.mark.parametrize(
    ("code", "digits"),
    [
        ("EUR", 2),
        ("USD", 2),
        ("JPY", 0),
        ("KWD", 3),
        ("ISK", 0),
        ("HUF", 2),
        ("TWD", 2),
        ("IDR", 2),
        ("CLF", 4),
    ],
)
def test_the_exponent_is_the_one_of_iso_4217(code, digits):
    assert exponent(code) == digits


@pytest.mark.parametrize(
    "code", ["XXX", "XAU", "eur", "EURO", "", "ZZZ", "HRK", "BGN", "BTC", None, 978, ["EUR"]]
)
def test_a_code_that_is_not_active_is_refused_and_not_given_two_decimals(code):
    with pytest.raises(UnknownCurrency):
        exponent(code)


def test_the_table_agrees_with_an_independent_one_where_that_has_no_customs_of_its_own():
    # CLDR lists the digits in use, which for these currencies are fewer than the standard has.
    customs = "AFN ALL COP IQD IRR KPW LAK LBP MGA MMK PKR RSD SOS SYP YER HUF TWD IDR"
    fractions = get_global("currency_fractions")
    for code, digits in EXPONENTS.items():
        if code not in customs:
            assert fractions.get(code, fractions["DEFAULT"])[0] == digits, code


@pytest.mark.parametrize(
    ("currency", "minor", "wire"),
    [
        ("EUR", 1999, 1999),
        ("JPY", 500, 500),
        ("KWD", 5120, 5120),
        ("HUF", 104500, 104500),
        ("TWD", 80045, 80045),
        ("ISK", 5, 500),
        ("UGX", 5, 500),
        ("MGA", 500, 5),
    ],
)
def test_the_gateway_gets_its_own_minor_units_and_they_come_back_unchanged(currency, minor, wire):
    assert to_wire(minor, currency) == wire
    assert from_wire(wire, currency) == minor


@pytest.mark.parametrize(("currency", "minor"), [("KWD", 5124), ("BHD", 1), ("MGA", 550)])
def test_an_amount_the_gateway_cannot_take_is_refused_and_not_rounded(currency, minor):
    assert minor % charge_step(currency)
    with pytest.raises(NotChargeable):
        to_wire(minor, currency)


def test_a_fraction_of_a_krona_in_an_answer_is_refused():
    with pytest.raises(NotChargeable):
        from_wire(501, "ISK")
