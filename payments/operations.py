"""Every write of a payment, and the one place that calls the gateway for a charge.

`begin` and `record` run inside the caller's transaction with the order locked; `call` runs outside
any transaction. Outcomes go back to the caller as values.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import assert_never
from uuid import UUID

from django.db import connection

from payments.clients import background_gateway, inline_gateway
from payments.models import Payment
from payments.outcomes import (
    ActionRequired,
    CancelOutcome,
    Charge,
    ChargeOutcome,
    Declined,
    NotFound,
    NotSent,
    RefundOutcome,
    Refused,
    Succeeded,
    Unknown,
)
from payments.states import TRANSITIONS, PaymentEvent, PaymentStatus, advance
from resilience.breaker import State
from resilience.deadline import Deadline

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PaymentView:
    """A payment as others see it."""

    id: UUID
    reference: str
    status: PaymentStatus
    amount_minor: int
    currency: str
    method: str
    return_url: str
    intent: str | None
    action_url: str | None
    reason: str
    idempotency_key: str

    @property
    def may_have_left(self) -> bool:
        """Whether some call of this payment may have reached the gateway."""
        return self.status not in {PaymentStatus.NEW, PaymentStatus.VOIDED}


def view(payment: Payment) -> PaymentView:
    return PaymentView(
        id=payment.id,
        reference=payment.reference,
        status=PaymentStatus(payment.status),
        amount_minor=payment.amount_minor,
        currency=payment.currency,
        method=payment.method,
        return_url=payment.return_url,
        intent=payment.intent,
        action_url=payment.action_url,
        reason=payment.reason,
        idempotency_key=payment.idempotency_key,
    )


def create(
    order_key: str,
    amount_minor: int,
    currency: str,
    method: str,
    *,
    return_url: str,
    started: bool,
    first: bool = False,
) -> PaymentView:
    """A new payment of an order. `started` when the caller goes on to call the gateway at once.

    `first` for an order that was made in this transaction and cannot have earlier ones.

    The database refuses a second open payment of the same order.
    """
    earlier = 0 if first else Payment.objects.filter(order_key=order_key).count()
    payment = Payment(
        order_key=order_key,
        reference=order_key if not earlier else f"{order_key}.{earlier + 1}",
        amount_minor=amount_minor,
        currency=currency,
        method=method,
        return_url=return_url,
        status=PaymentStatus.PROCESSING if started else PaymentStatus.NEW,
    )
    payment.save(force_insert=True)
    return view(payment)


def latest(order_key: str) -> PaymentView:
    """The order's newest payment, locked. Call inside a transaction, with the order locked."""
    payment = Payment.objects.select_for_update().filter(order_key=order_key).latest("created_at")
    return view(payment)


def _lock(payment_id: UUID) -> Payment:
    return Payment.objects.select_for_update().get(pk=payment_id)


def begin(payment_id: UUID) -> PaymentView:
    """Writes down that a call is about to be made. Commit before making it."""
    payment = _lock(payment_id)
    payment.status = advance(TRANSITIONS, PaymentStatus(payment.status), PaymentEvent.START)
    payment.save(update_fields=["status", "updated_at"])
    return view(payment)


def charge_of(payment: PaymentView) -> Charge:
    """What is asked of the gateway: frozen at order time, whatever prices and rates did since."""
    return Charge(
        reference=payment.reference,
        amount_minor=payment.amount_minor,
        currency=payment.currency,
        method=payment.method,
        idempotency_key=payment.idempotency_key,
        return_url=payment.return_url or None,
    )


def call(payment: PaymentView, deadline: Deadline, *, inline: bool) -> ChargeOutcome:
    """Takes the money, or finds out what became of an earlier try. One function for all callers.

    When an earlier call may have left, the gateway is asked first and charged only if it knows
    nothing, always under the same idempotency key. Never inside a transaction.
    """
    if connection.in_atomic_block:
        raise RuntimeError("a money call inside a database transaction")
    gateway = inline_gateway() if inline else background_gateway()
    charge = charge_of(payment)
    if payment.status in {PaymentStatus.UNKNOWN, PaymentStatus.ACTION_REQUIRED}:
        found = gateway.look_up(payment.reference, payment.intent, charge, deadline)
        if not isinstance(found, NotFound):
            return found
    return gateway.charge(charge, deadline)


_EVENTS: dict[type, PaymentEvent] = {
    Succeeded: PaymentEvent.SUCCEED,
    Declined: PaymentEvent.DECLINE,
    Refused: PaymentEvent.DECLINE,
    ActionRequired: PaymentEvent.REQUIRE_ACTION,
    NotSent: PaymentEvent.NOT_SENT,
    Unknown: PaymentEvent.LOST_SIGHT,
}


def record(payment_id: UUID, outcome: ChargeOutcome) -> PaymentView:
    """Writes an outcome down. Call inside a transaction, with the order locked."""
    payment = _lock(payment_id)
    payment.status = advance(TRANSITIONS, PaymentStatus(payment.status), _EVENTS[type(outcome)])
    match outcome:
        case Succeeded(intent=intent):
            payment.intent, payment.reason, payment.action_url = intent, "", None
        case Declined(code=code, intent=intent):
            payment.intent, payment.reason = intent or payment.intent, code[:64]
        case Refused(code=code):
            payment.reason = code[:64]
        case ActionRequired(intent=intent, url=url):
            payment.intent, payment.action_url, payment.reason = intent, url, ""
        case Unknown(reason=reason, intent=intent):
            payment.intent, payment.reason = intent or payment.intent, reason[:64]
        case NotSent(reason=reason):
            payment.reason = reason[:64]
        case _:
            assert_never(outcome)
    payment.save()
    return view(payment)


def void(payment_id: UUID) -> PaymentView:
    """Nothing was taken and nothing will be. Call inside a transaction."""
    payment = _lock(payment_id)
    payment.status = advance(TRANSITIONS, PaymentStatus(payment.status), PaymentEvent.VOID)
    payment.save(update_fields=["status", "updated_at"])
    return view(payment)


def refunded(payment_id: UUID, refund: str | None) -> PaymentView:
    """The money went back. Call inside a transaction."""
    payment = _lock(payment_id)
    payment.status = advance(TRANSITIONS, PaymentStatus(payment.status), PaymentEvent.REFUND)
    payment.refund = refund
    payment.save(update_fields=["status", "refund", "updated_at"])
    return view(payment)


def note_lookup(payment_id: UUID) -> int:
    """Counts one more look at the gateway that found nothing; returns how many there were."""
    payment = _lock(payment_id)
    payment.lookups += 1
    payment.save(update_fields=["lookups", "updated_at"])
    return payment.lookups


def get(payment_id: UUID) -> PaymentView:
    """One payment. Raises LookupError."""
    payment = Payment.objects.filter(pk=payment_id).first()
    if payment is None:
        raise LookupError("no such payment")
    return view(payment)


def find_out(payment: PaymentView, deadline: Deadline) -> ChargeOutcome | NotFound:
    """Asks the gateway what became of a payment. Takes no money. Never inside a transaction."""
    return background_gateway().look_up(payment.reference, payment.intent, charge_of(payment), deadline)


def cancel_intent(payment: PaymentView, intent: str, deadline: Deadline) -> CancelOutcome:
    """Cancels what was begun at the gateway, under a stable key. Never inside a transaction."""
    return background_gateway().cancel(intent, f"void-{payment.id}", deadline)


def give_back(payment: PaymentView, deadline: Deadline) -> RefundOutcome:
    """Refunds the whole amount, under a stable key. Never inside a transaction."""
    assert payment.intent is not None
    key = f"refund-{payment.id}"
    gateway = background_gateway()
    return gateway.refund(payment.intent, payment.amount_minor, key, deadline, currency=payment.currency)


def paused_for() -> float | None:
    """Seconds for which workers should leave the gateway alone because its breaker is open."""
    snapshot = background_gateway().chain.breaker.snapshot()
    return snapshot.retry_after if snapshot.state is State.OPEN else None


def must_wait() -> bool:
    """Whether this process's own breaker would refuse a charge now, so that an order will be unpaid."""
    return inline_gateway().chain.breaker.state in {State.OPEN, State.FORCED_OPEN}
