"""The gateway's own idea of minor units, where it differs from ISO 4217.

Source: docs.stripe.com/currencies, sections "Zero-decimal", "Three-decimal" and "Special cases".
- ISK and UGX have no decimals, but are sent as if they had two, the last two digits always 00. (UGX also
  stands in the list of zero-decimal currencies; the special case is the one that holds for charges.)
- MGA has two decimals in ISO 4217 and none at the gateway.
- The last digit of a three-decimal amount must be 0.
- HUF and TWD are special for payouts only; charges have the two decimals of ISO 4217.
Every other currency is sent in ISO 4217 minor units.
"""

from __future__ import annotations

_SENT_TIMES_100 = frozenset({"ISK", "UGX"})
_STEP = {"BHD": 10, "JOD": 10, "KWD": 10, "OMR": 10, "TND": 10, "MGA": 100}


_MOST_AT_ONCE = 99_999_999
"""Eight digits, "Minimum and maximum charge amounts" of the same page."""


class NotChargeable(ValueError):
    """The gateway cannot take exactly this amount in this currency."""


def charge_step(currency: str) -> int:
    """Return the smallest amount, in ISO minor units, of which a charge in `currency` must be a multiple."""
    return _STEP.get(currency, 1)


def can_charge(amount_minor: int, currency: str) -> bool:
    """Whether one payment can be of this amount, in ISO minor units. What a shop's own contract adds to the
    smallest and largest amount only the gateway knows.
    """
    try:
        return 1 <= to_wire(amount_minor, currency) <= _MOST_AT_ONCE
    except NotChargeable:
        return False


def to_wire(amount_minor: int, currency: str) -> int:
    """Turn ISO minor units into the gateway's integer; raise `NotChargeable` rather than round money."""
    if amount_minor % charge_step(currency):
        raise NotChargeable(f"{currency} amounts must be a multiple of {charge_step(currency)} minor units")
    if currency in _SENT_TIMES_100:
        return amount_minor * 100
    return amount_minor // 100 if currency == "MGA" else amount_minor


def from_wire(wire_amount: int, currency: str) -> int:
    """Turn the gateway's integer into ISO minor units; raise `NotChargeable` if it stands for a fraction."""
    if currency in _SENT_TIMES_100:
        if wire_amount % 100:
            raise NotChargeable(f"a {currency} amount ends in 00 at the gateway")
        return wire_amount // 100
    return wire_amount * 100 if currency == "MGA" else wire_amount
