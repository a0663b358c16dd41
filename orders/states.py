"""The life of an order as a table of data. No framework here."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class OrderStatus(StrEnum):
    PLACED = "PLACED"
    AWAITING_PAYMENT = "AWAITING_PAYMENT"
    ACTION_REQUIRED = "ACTION_REQUIRED"
    PAID = "PAID"
    DECLINED = "DECLINED"
    CANCELLED = "CANCELLED"
    REFUNDED = "REFUNDED"


class OrderAction(StrEnum):
    PAY = "pay"
    DEFER = "defer"
    REQUIRE_ACTION = "require_action"
    DECLINE = "decline"
    RETRY = "retry"
    CANCEL = "cancel"
    EXPIRE = "expire"
    REFUND = "refund"


_S, _A = OrderStatus, OrderAction

TRANSITIONS: Mapping[tuple[OrderStatus, OrderAction], OrderStatus] = {
    (_S.PLACED, _A.PAY): _S.PAID,
    (_S.PLACED, _A.DEFER): _S.AWAITING_PAYMENT,
    (_S.PLACED, _A.REQUIRE_ACTION): _S.ACTION_REQUIRED,
    (_S.PLACED, _A.DECLINE): _S.DECLINED,
    (_S.PLACED, _A.CANCEL): _S.CANCELLED,
    (_S.PLACED, _A.EXPIRE): _S.CANCELLED,
    (_S.AWAITING_PAYMENT, _A.PAY): _S.PAID,
    (_S.AWAITING_PAYMENT, _A.DEFER): _S.AWAITING_PAYMENT,
    (_S.AWAITING_PAYMENT, _A.REQUIRE_ACTION): _S.ACTION_REQUIRED,
    (_S.AWAITING_PAYMENT, _A.DECLINE): _S.DECLINED,
    (_S.AWAITING_PAYMENT, _A.CANCEL): _S.CANCELLED,
    (_S.AWAITING_PAYMENT, _A.EXPIRE): _S.CANCELLED,
    (_S.ACTION_REQUIRED, _A.PAY): _S.PAID,
    (_S.ACTION_REQUIRED, _A.DEFER): _S.ACTION_REQUIRED,
    (_S.ACTION_REQUIRED, _A.REQUIRE_ACTION): _S.ACTION_REQUIRED,
    (_S.ACTION_REQUIRED, _A.DECLINE): _S.DECLINED,
    (_S.ACTION_REQUIRED, _A.CANCEL): _S.CANCELLED,
    (_S.ACTION_REQUIRED, _A.EXPIRE): _S.CANCELLED,
    (_S.ACTION_REQUIRED, _A.RETRY): _S.AWAITING_PAYMENT,  # another card instead of the bank's question
    (_S.DECLINED, _A.RETRY): _S.AWAITING_PAYMENT,
    (_S.PAID, _A.REFUND): _S.REFUNDED,
}

INITIAL = _S.PLACED
HOLDING = frozenset({_S.PLACED, _S.AWAITING_PAYMENT, _S.ACTION_REQUIRED})
"""States in which the order holds a stock reserve that can run out."""
UNPAID_ENDS = frozenset({_S.CANCELLED, _S.DECLINED})
"""States of an order that wants no money: what was taken all the same goes back."""
TERMINAL = frozenset({_S.CANCELLED, _S.REFUNDED})
