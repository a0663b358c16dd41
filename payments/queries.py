"""Every read of payments, plain values out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet

from payments import dbtime
from payments.models import MoneyCheck, Payment
from payments.operations import PaymentView, view
from payments.states import PaymentStatus


def newest(order_key: str) -> PaymentView | None:
    """The order's newest payment."""
    payment = Payment.objects.filter(order_key=order_key).order_by("-number").first()
    return view(payment) if payment else None


def all_payments() -> list[tuple[str, PaymentView]]:
    """Every payment with the key of its order, for the audit."""
    return [(payment.order_key, view(payment)) for payment in Payment.objects.all().iterator(chunk_size=2000)]


def payments_of(order_keys: Iterable[str]) -> list[tuple[str, PaymentView]]:
    """The payments of some orders, oldest first."""
    found = Payment.objects.filter(order_key__in=list(order_keys)).order_by("order_key", "number")
    return [(payment.order_key, view(payment)) for payment in found]


def order_keys(statuses: Iterable[PaymentStatus]) -> QuerySet[Payment, str]:
    """The keys of the orders that have a payment in one of these states, as a part of a larger query."""
    return Payment.objects.filter(status__in=sorted(statuses)).values_list("order_key", flat=True)


@dataclass(frozen=True)
class MoneyCheckView:
    """One case for staff. `order_key` is empty when there is money but no order."""

    id: int
    order_key: str
    subject: str
    reason: str
    opened_at: datetime


def open_checks(limit: int = 200) -> list[MoneyCheckView]:
    """The cases that wait for a person, oldest first."""
    rows = MoneyCheck.objects.filter(closed_at__isnull=True)[:limit]
    return [MoneyCheckView(row.pk, row.order_key, row.subject, row.reason, row.opened_at) for row in rows]


def has_open_check(order_key: str) -> bool:
    """Whether a person is asked about the money of this order."""
    return MoneyCheck.objects.filter(order_key=order_key, closed_at__isnull=True).exists()


def count_open_checks() -> int:
    """How many cases wait for a person."""
    return MoneyCheck.objects.filter(closed_at__isnull=True).count()


def _unknown(at_least: timedelta) -> QuerySet[Payment]:
    return Payment.objects.filter(status=PaymentStatus.UNKNOWN, created_at__lte=dbtime.Now() - at_least)


def unknown_since(at_least: timedelta) -> list[PaymentView]:
    """Payments of which nobody knows for so long whether they took money, the longest first."""
    return [view(payment) for payment in _unknown(at_least).order_by("created_at")[:1000]]


def count_unknown(at_least: timedelta) -> int:
    """How many of those there are."""
    return _unknown(at_least).count()
