"""Asking the gateway what became of a payment, on a webhook's hint or while a shopper is at the bank."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.db import transaction

from orders import outbox
from orders.models import Order
from orders.operations.settle import bring_fact, hand_back
from orders.operations.steps import WORKER, lock, tell
from orders.operations.undo import subject
from orders.outbox import Lease
from orders.states import OrderStatus
from payments import checks, crashpoints, dbtime
from payments import operations as payments
from payments.incoming import MONEY_TAKEN
from payments.operations import PaymentView
from payments.outcomes import ActionRequired, Declined, LookupOutcome, NotFound, NotSent, Succeeded, Unknown
from payments.queries import newest
from payments.states import PaymentStatus
from payments.webhooks import WebhookEvent
from payments.wire import is_id
from resilience.deadline import Deadline


def event_arrived(event: WebhookEvent, payment: PaymentView, order_key: str) -> None:
    """The gateway says that something happened to a payment: look it up soon, whatever it was.

    Runs in the transaction that saves the event.
    """
    order = Order.objects.filter(number=order_key).first()
    if order is None:
        checks.open_check(payment.reference, f"{event.type}, but the order is gone")
        return
    outbox.append(
        outbox.CHECK,
        order.pk,
        dedup=f"check:event:{event.id}"[:120],
        due_at=dbtime.read(),
        now=dbtime.read(),
        payload={"payment": str(payment.id), "intent": event.intent, "event": event.type},
    )


def look_again(order_token: str) -> None:
    """The shopper comes back from the bank: ask now instead of at the next turn."""
    order = Order.objects.filter(token=order_token, status=OrderStatus.ACTION_REQUIRED).first()
    payment = newest(order.number) if order else None
    if payment is not None:
        outbox.hurry(f"check:{payment.id}")


def deliver_check(lease: Lease) -> None:
    """Looks a payment up and writes down what is certain. Takes no money."""
    order, payment = subject(lease)
    told = lease.payload.get("intent")
    intent = told if is_id(told) else None
    if intent is None and payment.status != PaymentStatus.ACTION_REQUIRED:
        with transaction.atomic():
            outbox.done(lease)  # the shopper's answer at the bank has come to light
        return
    deadline = Deadline.after_ms(settings.HOLDFAST.worker_budget_ms)
    found = payments.find_out(payment, deadline, intent)
    crashpoints.reached("check.looked")
    with transaction.atomic():
        _found(lease, lock(order.pk), payments.get(payment.id), found)


def _found(lease: Lease, order: Order, payment: PaymentView, found: LookupOutcome) -> None:
    now = dbtime.read()
    match found:
        case NotFound() | Declined() | ActionRequired() if lease.payload.get("event") in MONEY_TAKEN:
            # Two things that cannot both be true: neither is written down until one of them is told again.
            outbox.retry(lease, "the gateway told of money that it does not show")
        case NotFound():
            outbox.done(lease)
        case NotSent():
            hand_back(lease, found)
        case Unknown(reason="refunded", intent=payment.intent) if payment.status == PaymentStatus.SUCCEEDED:
            _ask_a_person(order, payment, "given back at the gateway", now)
            outbox.done(lease)
        case Succeeded() if payment.status == PaymentStatus.REFUNDED and "refund" in str(
            lease.payload.get("event")
        ):
            _ask_a_person(order, payment, "a refund has failed at the gateway: the money is still there", now)
            outbox.done(lease)
        case Unknown(reason="refunded"):
            outbox.done(lease)
        case Unknown(others=()):
            hand_back(lease, found)
        case _:
            after = bring_fact(order, payment, found, WORKER, now)
            waiting = isinstance(found, ActionRequired) and after.status == PaymentStatus.ACTION_REQUIRED
            if waiting and not lease.payload.get("intent"):
                pause = settings.HOLDFAST.action_poll_seconds
                outbox.retry(lease, "the shopper is at the bank", counts=False, not_before=pause)
            else:
                outbox.done(lease)


def _ask_a_person(order: Order, payment: PaymentView, reason: str, now: datetime) -> None:
    if checks.open_check(payment.reference, reason, order_key=order.number):
        tell(order, "money_check", actor=WORKER, now=now)


def dead_letter(lease: Lease, reason: str) -> None:
    """A message about money that died is a case for staff. Runs in the transaction that buries it."""
    if outbox.DESTINATIONS.get(lease.kind, outbox.PAYMENT) != outbox.PAYMENT:
        return
    order = Order.objects.filter(pk=lease.order_id).first()
    number = order.number if order else ""
    subject_of = number or f"message {lease.message_id}"
    fresh = checks.open_check(subject_of, f"{lease.kind}: {reason}", order_key=number)
    if order is not None and fresh:
        tell(order, "money_check", actor=WORKER, now=dbtime.read())
