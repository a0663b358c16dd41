"""Webhooks come in: each event once, saved with what it causes, and believed in nothing but its subject."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from django.db import transaction

from payments import checks, crashpoints, dbtime
from payments.models import Payment, WebhookReceipt
from payments.operations import PaymentView, view
from payments.webhooks import WebhookEvent

Handler = Callable[[WebhookEvent, PaymentView, str], None]
_handlers: list[Handler] = []

MONEY_TAKEN = frozenset({"payment_intent.succeeded", "charge.succeeded"})


def register(handler: Handler) -> None:
    """Names what is done about an event of a payment of ours: (event, payment, order key). By orders/apps.py."""
    _handlers[:] = [handler]


def receive(event: WebhookEvent) -> bool:
    """Saves an event and what follows from it; False if the event was here before.

    Nothing is looked up here, so that the gateway gets its answer at once. An event about money that
    no order of ours asked for becomes a money check; others that we know nothing of are only kept.
    """
    with transaction.atomic():
        receipt = WebhookReceipt(
            event=event.id,
            kind=event.type,
            intent=event.intent or "",
            reference=event.reference or "",
            received_at=dbtime.read(),
        )
        if WebhookReceipt.objects.filter(pk=event.id).exists():
            return False
        # Of two at once the second waits here for the first one's commit, then raises IntegrityError.
        receipt.save(force_insert=True)
        payment = _payment_of(event)
        if payment is not None:
            for handler in _handlers:
                handler(event, view(payment), payment.order_key)
        elif event.type in MONEY_TAKEN and event.intent:
            checks.open_check(event.intent, f"money without an order: {event.reference or 'no reference'}")
    crashpoints.reached("webhook.committed")
    return True


def _payment_of(event: WebhookEvent) -> Payment | None:
    if event.reference and (found := Payment.objects.filter(reference=event.reference).first()):
        return found
    return Payment.objects.filter(intent=event.intent).first() if event.intent else None


def purge(older_than: timedelta) -> int:
    """Forgets events that the gateway will not tell again."""
    old = WebhookReceipt.objects.filter(received_at__lt=dbtime.read() - older_than)
    return old.delete()[0]
