"""Undoing: cancel, expire, void what may have been taken, refund what was.

A cancelled order is never charged. What is known about its payment decides how it ends:

| payment                              | what happens                                              |
|--------------------------------------|-----------------------------------------------------------|
| NEW, nobody at it                    | voided at once, no call                                   |
| may have left, or a call is running  | void message: look it up, cancel the intent, or refund    |
| SUCCEEDED                            | refund message                                            |
| DECLINED, VOIDED, REFUNDED           | nothing to do                                             |
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction

from orders import outbox
from orders.models import Order
from orders.operations import notify, stock
from orders.operations.settle import bring_fact, hand_back, money_came, promise_void
from orders.operations.steps import CLOCK, WORKER, lock, move, tell
from orders.outbox import Lease, PoisonError
from orders.states import HOLDING, OrderAction, OrderStatus
from payments import crashpoints, dbtime
from payments import operations as payments
from payments.operations import PaymentView
from payments.outcomes import (
    ActionRequired,
    AlreadyCaptured,
    Cancelled,
    CancelOutcome,
    Declined,
    LookupOutcome,
    NotFound,
    NotSent,
    Refunded,
    RefundRefused,
    Succeeded,
    Unknown,
)
from payments.states import PaymentStatus
from payments.wire import is_id
from resilience.deadline import Deadline

logger = logging.getLogger(__name__)

VOID_LOOKS = 4
"""An intent that the gateway does not know of after so many looks, at least VOID_LOOK_SECONDS apart, was never
made. Should it come to light all the same, its webhook brings the money back."""


def cancel(order_id: int, actor: str, reason: str) -> OrderStatus:
    """Cancels an unpaid order. Raises IllegalTransitionError for one that is paid or has ended."""
    with transaction.atomic():
        order = lock(order_id)
        status = _end(order, OrderAction.CANCEL, actor, reason, dbtime.read())
        crashpoints.reached("cancel.written")
    crashpoints.reached("cancel.committed")
    return status


def cancel_by_token(order_token: str, actor: str) -> OrderStatus:
    """The shopper's cancel. Raises Order.DoesNotExist, IllegalTransitionError."""
    order_id = Order.objects.only("pk").get(token=order_token).pk
    return cancel(order_id, actor, "cancelled by the shopper")


def _end(order: Order, action: OrderAction, actor: str, reason: str, now: datetime) -> OrderStatus:
    status = move(order, action, actor=actor, now=now, detail={"reason": reason})
    stock.release(order.pk)
    payment = payments.latest(order.number)
    running = outbox.in_flight(order.pk, outbox.CHARGE)
    outbox.withdraw(order.pk, outbox.CHARGE, f"the order was ended: {reason}")
    if payment.status == PaymentStatus.NEW and not running:
        payments.void(payment.id)
    elif running or payment.status not in {PaymentStatus.DECLINED, PaymentStatus.VOIDED}:
        pause = settings.HOLDFAST.outbox_lease_seconds if running else 0
        promise_void(order, payment, now, timedelta(seconds=pause))
    notify.promise(order, notify.CANCELLED, now)
    return status


def expire_overdue(limit: int = 100) -> int:
    """Cancels orders whose reserve ran out, a batch at a time; returns how many.

    Order by order in a transaction of its own, so that a long batch holds no locks. An order whose
    charge is being called right now is left for the next round.
    """
    overdue = (
        Order.objects.filter(status__in=[s.value for s in HOLDING], reserve_until__lte=dbtime.Now())
        .order_by("reserve_until")
        .values_list("pk", flat=True)[:limit]
    )
    return sum(_expire(order_id) for order_id in list(overdue))


def _expire(order_id: int) -> bool:
    with transaction.atomic():
        order = Order.objects.select_for_update(skip_locked=True, of=("self",)).filter(pk=order_id).first()
        now = dbtime.read()
        if order is None or OrderStatus(order.status) not in HOLDING or order.reserve_until > now:
            return False
        if outbox.in_flight(order_id, outbox.CHARGE):
            return False
        crashpoints.reached("expire.checked")
        _end(order, OrderAction.EXPIRE, CLOCK, "the reserve ran out", now)
    crashpoints.reached("expire.committed")
    return True


def subject(lease: Lease) -> tuple[Order, PaymentView]:
    """The order and payment a message speaks of. Raises PoisonError if they do not exist."""
    order = Order.objects.filter(pk=lease.order_id).first()
    try:
        payment = payments.get(UUID(str(lease.payload.get("payment"))))
    except (ValueError, LookupError):
        payment = None
    if order is None or payment is None:
        raise PoisonError("the order or the payment does not exist")
    return order, payment


def deliver_void(lease: Lease) -> None:
    """Finds out what became of an unwanted payment and undoes it: cancel the intent, or refund."""
    order, payment = subject(lease)
    if payment.status in {PaymentStatus.SUCCEEDED, PaymentStatus.REFUNDED}:
        with transaction.atomic():
            money_came(lock(order.pk), payments.get(payment.id), WORKER, dbtime.read())
            outbox.done(lease)
        return
    deadline = Deadline.after_ms(settings.HOLDFAST.worker_budget_ms)
    found: LookupOutcome | CancelOutcome = payments.find_out(payment, deadline)
    crashpoints.reached("void.looked")
    if isinstance(found, ActionRequired) or (isinstance(found, Unknown) and found.touchable):
        assert found.intent is not None
        found = payments.cancel_intent(payment, found.intent, deadline, edition=_edition(lease))
        crashpoints.reached("void.cancelled")
    if isinstance(found, AlreadyCaptured) and not payments.is_whole(payment, found):
        found = Unknown("mismatch")  # a part given back would hide the rest: a person looks
    with transaction.atomic():
        _undone(lease, lock(order.pk), payment, found)
    crashpoints.reached("void.committed")


def _undone(lease: Lease, order: Order, payment: PaymentView, found: LookupOutcome | CancelOutcome) -> None:
    now = dbtime.read()
    match found:
        case Succeeded() | AlreadyCaptured():
            bring_fact(order, payment, Succeeded(found.intent), WORKER, now)
            outbox.done(lease)
        case Unknown(others=others) if others:
            bring_fact(order, payment, found, WORKER, now)
            outbox.done(lease)
        case Cancelled() | Declined():
            _void_unless_paid(order, payment, now)
            outbox.done(lease)
        case NotFound() if payments.note_lookup(payment.id) >= VOID_LOOKS:
            _void_unless_paid(order, payment, now)
            outbox.done(lease)
        case NotFound():
            outbox.retry(
                lease,
                "the gateway does not know of it (yet)",
                counts=False,
                not_before=settings.HOLDFAST.void_look_seconds,
            )
        case NotSent() | Unknown():
            _again(lease, found)
        case _:
            outbox.retry(lease, type(found).__name__)


def _edition(lease: Lease) -> int:
    """Which edition of its key a message uses."""
    edition = lease.payload.get("edition", 0)
    return edition if isinstance(edition, int) else 0


def _again(lease: Lease, outcome: NotSent | Unknown) -> None:
    """Back into the queue; with the next edition of the key if the gateway has kept an error under this one."""
    if outcome.reason == "stored_error":
        outbox.amend(lease, {**lease.payload, "edition": _edition(lease) + 1})
    hand_back(lease, outcome)


def _void_unless_paid(order: Order, payment: PaymentView, now: datetime) -> None:
    """What the gateway told may be older than what somebody else has written down meanwhile."""
    latest = payments.get(payment.id)
    if latest.status == PaymentStatus.SUCCEEDED:
        money_came(order, latest, WORKER, now)
    else:
        payments.void(payment.id)


def _doubt_of_the_first(payment: PaymentView, deadline: Deadline) -> NotSent | Unknown | None:
    """A second charge of a paid payment goes back only while the first is there. Raises PoisonError if it is not."""
    if payment.status != PaymentStatus.SUCCEEDED:
        return None
    found = payments.find_out(payment, deadline)
    if isinstance(found, NotSent) or (isinstance(found, Unknown) and found.outage):
        return found
    if not isinstance(found, Succeeded) or found.intent != payment.intent:
        raise PoisonError("the charge on record is not at the gateway, so this one may be the only one")
    return None


def deliver_refund(lease: Lease) -> None:
    """Gives the money of one intent back, under a key that never changes."""
    order, payment = subject(lease)
    intent = lease.payload.get("intent") or payment.intent
    if not isinstance(intent, str) or not is_id(intent):
        raise PoisonError("the refund names no intent")
    whole = intent == payment.intent
    if whole and payment.status == PaymentStatus.REFUNDED:
        with transaction.atomic():
            outbox.done(lease)
        return
    deadline = Deadline.after_ms(settings.HOLDFAST.worker_budget_ms)
    doubt = None if whole else _doubt_of_the_first(payment, deadline)
    outcome = doubt or payments.give_back(payment, intent, deadline, edition=_edition(lease))
    crashpoints.reached("refund.called")
    with transaction.atomic():
        order = lock(order.pk)
        now = dbtime.read()
        match outcome:
            case Refunded(refund=refund):
                if whole:
                    payments.refunded(payment.id, refund)
                tell(order, "refunded", actor=WORKER, now=now, detail={"payment": payment.reference})
                notify.promise(order, notify.REFUNDED, now)
                outbox.done(lease)
            case RefundRefused(code=code):
                outbox.dead(lease, f"the gateway refuses the refund: {code}")
            case NotSent() | Unknown():
                _again(lease, outcome)
    crashpoints.reached("refund.committed")
