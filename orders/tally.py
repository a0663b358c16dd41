"""How checkouts and charges ended since this process began: numbers for the metrics, nothing of any order."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, get_args

from payments.outcomes import ChargeOutcome
from resilience.counter import Counter


class End(StrEnum):
    """What a submitted checkout came to."""

    PAID = "paid"
    DECLINED = "declined"
    ACTION_REQUIRED = "action_required"
    AWAITING_PAYMENT = "awaiting_payment"
    TAKEN_OVER = "taken_over"  # meanwhile a worker has the charge, or the order was cancelled
    REPEATED = "repeated"  # the same form once more: its order stands
    EMPTY = "empty"
    BASKET_CHANGED = "basket_changed"
    PRICE_CHANGED = "price_changed"
    SOLD_OUT = "sold_out"
    UNPAID_LIMIT = "unpaid_limit"
    NOT_CHARGEABLE = "not_chargeable"
    CATALOG_DOWN = "catalog_down"
    CURRENCY_UNAVAILABLE = "currency_unavailable"


CHECKOUTS: Final = {end: Counter() for end in End}
"""Submitted checkouts, by their end."""

CHARGES: Final = {outcome: Counter() for outcome in get_args(ChargeOutcome)}
"""Calls to charge an order, inline or by a worker, by what the gateway's answer meant."""
