"""Every read of payments, plain values out."""

from __future__ import annotations

from datetime import timedelta

from payments import dbtime
from payments.models import Payment
from payments.operations import PaymentView, view
from payments.states import PaymentStatus


def newest(order_key: str) -> PaymentView | None:
    """The order's newest payment."""
    payment = Payment.objects.filter(order_key=order_key).order_by("-created_at").first()
    return view(payment) if payment else None


def all_payments() -> list[tuple[str, PaymentView]]:
    """Every payment with the key of its order, for the audit."""
    return [(payment.order_key, view(payment)) for payment in Payment.objects.all().iterator(chunk_size=2000)]


def unknown_since(at_least: timedelta) -> list[PaymentView]:
    """Payments of which nobody knows for so long whether they took money, the longest first."""
    rows = Payment.objects.filter(
        status=PaymentStatus.UNKNOWN, created_at__lte=dbtime.Now() - at_least
    ).order_by("created_at")
    return [view(payment) for payment in rows[:1000]]
