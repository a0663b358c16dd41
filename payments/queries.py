"""Every read of payments, plain values out."""

from __future__ import annotations

from payments.models import Payment
from payments.operations import PaymentView, view


def newest(order_key: str) -> PaymentView | None:
    """The order's newest payment."""
    payment = Payment.objects.filter(order_key=order_key).order_by("-created_at").first()
    return view(payment) if payment else None


def all_payments() -> list[tuple[str, PaymentView]]:
    """Every payment with the key of its order, for the audit."""
    return [(payment.order_key, view(payment)) for payment in Payment.objects.all().iterator(chunk_size=2000)]
