"""Rates for tests, made in one line."""

from datetime import UTC, date, datetime
from decimal import Decimal

from orders.pricing import Freshness, Rate

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)


def rate(quote, value, base="EUR", **changes):
    """A fresh, chargeable rate of today, unless `changes` say otherwise."""
    fields = {
        "source": "ecb",
        "provider_date": date(2026, 11, 25),
        "fetched_at": NOW,
        "freshness": Freshness.FRESH,
        "may_charge": True,
        "may_show": True,
    }
    return Rate(base=base, quote=quote, value=Decimal(value), **(fields | changes))
