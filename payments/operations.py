"""Every write of a payment, and the one place that calls the gateway for a charge.

`begin` and `record` run inside the caller's transaction with the order locked; `call` runs outside
any transaction. Outcomes go back to the caller as values.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import assert_never
from uuid import UUID

from django.conf import settings
from django.db import connection

from payments import batch as batches
from payments import checks, dbtime
from payments.batch import Batch
from payments.clients import background_gateway, inline_gateway
from payments.gateway import Gateway
from payments.models import Payment
from payments.outcomes import (
    ActionRequired,
    AlreadyCaptured,
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
from payments.states import OPEN, TRANSITIONS, PaymentEvent, PaymentStatus, advance
from resilience.breaker import State
from resilience.deadline import Deadline

logger = logging.getLogger(__name__)

_REFUSED = "refused: "
"""Begins the reason of a payment whose request the gateway refused."""


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
    key_used_at: datetime | None

    @property
    def may_have_left(self) -> bool:
        """Whether some call of this payment may have reached the gateway."""
        return self.status not in {PaymentStatus.NEW, PaymentStatus.VOIDED}

    @property
    def refused(self) -> bool:
        """Whether it ended because the gateway refused the request, not because a bank declined the card."""
        return self.status == PaymentStatus.DECLINED and self.reason.startswith(_REFUSED)


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
        key_used_at=payment.key_used_at,
    )


def create(
    order_key: str,
    amount_minor: int,
    currency: str,
    method: str,
    *,
    return_url: str,
    started: bool,
    made_at: datetime | None = None,
    batch: Batch | None = None,
) -> PaymentView:
    """A new payment of an order. `started` when the caller goes on to call the gateway at once.

    `made_at` tells the time of an order that was made in this transaction, so it has no earlier payment.
    The database refuses a second open payment of the same order.
    """
    number = 1 if made_at else Payment.objects.filter(order_key=order_key).count() + 1
    payment = Payment(
        order_key=order_key,
        number=number,
        reference=order_key if number == 1 else f"{order_key}.{number}",
        amount_minor=amount_minor,
        currency=currency,
        method=method,
        return_url=return_url,
        status=PaymentStatus.PROCESSING if started else PaymentStatus.NEW,
        key_used_at=(made_at or dbtime.read()) if started else None,
    )
    batches.insert(payment, batch)
    # Who has just made a payment need not ask how old its key is.
    return replace(view(payment), key_used_at=None)


def latest(order_key: str) -> PaymentView:
    """The order's newest payment, locked. Call inside a transaction, with the order locked.

    Raises LookupError if there is none.
    """
    found = Payment.objects.select_for_update().filter(order_key=order_key).order_by("number").last()
    if found is None:
        raise LookupError("the order has no payment")
    return view(found)


def _lock(payment_id: UUID) -> Payment:
    return Payment.objects.select_for_update().get(pk=payment_id)


def begin(payment_id: UUID) -> PaymentView:
    """Writes down that a call is about to be made. Commit before making it.

    The view's `key_used_at` is that of an earlier call: None means that this is the first.
    """
    payment = _lock(payment_id)
    payment.status = advance(TRANSITIONS, PaymentStatus(payment.status), PaymentEvent.START)
    used_at = payment.key_used_at
    payment.key_used_at = used_at or dbtime.read()
    payment.save(update_fields=["status", "key_used_at", "updated_at"])
    return replace(view(payment), key_used_at=used_at)


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
    nothing, always under the same idempotency key. Once the gateway may have forgotten the key, it
    is only asked: a person decides about what it does not know. Never inside a transaction.
    """
    if connection.in_atomic_block:
        raise RuntimeError("a money call inside a database transaction")
    if not inline:
        return _call(background_gateway(), payment, deadline)
    gateway = inline_gateway()
    outcome = _call(gateway, payment, deadline)
    _note_settled(gateway, outcome)
    return outcome


def _call(gateway: Gateway, payment: PaymentView, deadline: Deadline) -> ChargeOutcome:
    charge = charge_of(payment)
    too_old = _key_too_old(payment)
    if too_old or payment.status in {PaymentStatus.UNKNOWN, PaymentStatus.ACTION_REQUIRED}:
        found = gateway.look_up(payment.reference, payment.intent, charge, deadline)
        if not isinstance(found, NotFound):
            return found
    answer = Unknown("key_too_old") if too_old else gateway.charge(charge, deadline)
    if isinstance(answer, Refused) and payment.key_used_at is not None:
        return Unknown(answer.code)  # this call did nothing; what an earlier one did is not told by that
    return answer


_unsettled: Gateway | None = None
"""The shoppers' gateway if its last call settled nothing."""


def _note_settled(gateway: Gateway, outcome: ChargeOutcome) -> None:
    global _unsettled
    _unsettled = gateway if isinstance(outcome, (NotSent, Unknown)) else None


def _key_too_old(payment: PaymentView) -> bool:
    if payment.key_used_at is None:
        return False
    age = (dbtime.read() - payment.key_used_at).total_seconds()
    return bool(age > settings.HOLDFAST.payment_key_seconds)


_EVENTS: dict[type, PaymentEvent] = {
    Succeeded: PaymentEvent.SUCCEED,
    Declined: PaymentEvent.DECLINE,
    Refused: PaymentEvent.DECLINE,
    ActionRequired: PaymentEvent.REQUIRE_ACTION,
    NotSent: PaymentEvent.NOT_SENT,
    Unknown: PaymentEvent.LOST_SIGHT,
}


def record(payment_id: UUID, outcome: ChargeOutcome, batch: Batch | None = None) -> PaymentView:
    """Writes an outcome down. Call inside a transaction, with the order locked.

    An answer that comes too late to change the status changes nothing else either. A second intent
    that took the money of a paid payment is not written over the first: the caller gives it back.
    """
    payment, asked = checks.lock(payment_id)
    before = PaymentStatus(payment.status)
    after = advance(TRANSITIONS, before, _EVENTS[type(outcome)])
    if after is not before or after in OPEN:
        payment.status = after
        _note(payment, outcome)
        if after is PaymentStatus.NEW:
            payment.key_used_at = None  # what was not sent has not used the key
        if asked:
            payment.save()
            checks.close_if_settled(payment.order_key)
        else:
            batches.save(payment, batch)
    return view(payment)


def _note(payment: Payment, outcome: ChargeOutcome) -> None:
    match outcome:
        case Succeeded(intent=intent):
            payment.intent, payment.reason, payment.action_url = intent, "", None
        case Declined(code=code, intent=intent):
            payment.intent, payment.reason = intent or payment.intent, code[:64]
        case Refused(code=code):
            payment.reason = f"{_REFUSED}{code}"[:64]
        case ActionRequired(intent=intent, url=url):
            payment.intent, payment.action_url, payment.reason = intent, url, ""
        case Unknown(reason=reason, intent=intent):
            payment.intent, payment.reason = intent or payment.intent, reason[:64]
        case NotSent(reason=reason):
            payment.reason = reason[:64]
        case _:
            assert_never(outcome)


def void(payment_id: UUID) -> PaymentView:
    """Nothing was taken and nothing will be. Call inside a transaction."""
    payment = _lock(payment_id)
    payment.status = advance(TRANSITIONS, PaymentStatus(payment.status), PaymentEvent.VOID)
    payment.save(update_fields=["status", "updated_at"])
    checks.close_if_settled(payment.order_key)
    return view(payment)


def refunded(payment_id: UUID, refund: str | None) -> PaymentView:
    """The money went back. Call inside a transaction."""
    payment = _lock(payment_id)
    payment.status = advance(TRANSITIONS, PaymentStatus(payment.status), PaymentEvent.REFUND)
    payment.refund = refund
    payment.save(update_fields=["status", "refund", "updated_at"])
    checks.close_if_settled(payment.order_key)
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


def find_out(payment: PaymentView, deadline: Deadline, intent: str | None = None) -> ChargeOutcome | NotFound:
    """Asks the gateway what became of a payment, or of one `intent` that was made for it.

    Takes no money. Never inside a transaction.
    """
    known = intent or payment.intent
    return background_gateway().look_up(payment.reference, known, charge_of(payment), deadline)


def cancel_intent(
    payment: PaymentView, intent: str, deadline: Deadline, *, inline: bool = False, edition: int = 0
) -> CancelOutcome:
    """Cancels what was begun at the gateway, under a stable key. Never inside a transaction.

    `edition` as in `give_back`; cancelling twice is cancelling.
    """
    gateway = inline_gateway() if inline else background_gateway()
    return gateway.cancel(intent, _edition(f"void-{payment.id}", edition), deadline)


def is_whole(payment: PaymentView, captured: AlreadyCaptured) -> bool:
    """Whether what was taken is what was asked for."""
    return (captured.amount_minor, captured.currency) == (payment.amount_minor, payment.currency)


def _edition(key: str, edition: int) -> str:
    return f"{key}-e{edition}" if edition else key


def give_back(payment: PaymentView, intent: str, deadline: Deadline, *, edition: int = 0) -> RefundOutcome:
    """Refunds the whole amount that `intent` took, under a stable key. Never inside a transaction.

    A gateway that has kept an error under the key answers nothing else for a day; the next `edition` of
    the key gets past it. It cannot give the money back twice: the gateway refuses more than was taken.
    """
    key = f"refund-{payment.id}" if intent == payment.intent else f"refund-{payment.id}-{intent}"
    key = _edition(key, edition)
    gateway = background_gateway()
    return gateway.refund(intent, payment.amount_minor, key, deadline, currency=payment.currency)


def gateway_seems_up(*, inline: bool) -> bool:
    """Whether this process's breaker trusts the gateway at the moment."""
    gateway = inline_gateway() if inline else background_gateway()
    return gateway.chain.breaker.state is State.CLOSED


def paused_for() -> float | None:
    """Seconds for which workers should leave the gateway alone because its breaker is open."""
    snapshot = background_gateway().chain.breaker.snapshot()
    return snapshot.retry_after if snapshot.state is State.OPEN else None


class Outlook(Enum):
    """What this process may expect of the charge of an order that it takes now."""

    GOOD = "good"
    DOUBTFUL = "doubtful"
    """Its breaker wants probes, or its last charge settled nothing: a revoked key is no failure to a breaker."""
    SHUT = "shut"
    """Its breaker lets no call through."""


def outlook() -> Outlook:
    """What a shopper's order may expect in this process."""
    gateway = inline_gateway()
    state = gateway.chain.breaker.state
    if state in {State.OPEN, State.FORCED_OPEN}:
        return Outlook.SHUT
    return Outlook.DOUBTFUL if state is State.HALF_OPEN or _unsettled is gateway else Outlook.GOOD
