"""From an outcome of the gateway to the order, its stock, its promises: one transaction.

A holder whose lease was lost may still bring facts (money taken, declined, action needed), since
they are true whoever asked; doubts of a lost holder are dropped.
"""

from __future__ import annotations

import hashlib
import logging
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from orders import outbox
from orders.models import Order
from orders.operations import notify, stock
from orders.operations.steps import SHOPPER, lock, move, tell
from orders.outbox import Lease
from orders.states import HOLDING, OrderAction, OrderStatus
from orders.tally import CHARGES
from payments import crashpoints, dbtime
from payments import operations as payments
from payments.batch import Batch
from payments.operations import PaymentView
from payments.outcomes import (
    ActionRequired,
    ChargeOutcome,
    Declined,
    NotSent,
    Refused,
    Succeeded,
    Unknown,
)
from payments.states import OPEN, PaymentStatus

logger = logging.getLogger(__name__)

_TRIED = ("placed", OrderAction.RETRY.value, OrderAction.DEFER.value)
"""An attempt to pay begins, or is put off: the last of these tells which."""


def settle(lease: Lease, payment: PaymentView, outcome: ChargeOutcome, actor: str) -> OrderStatus:
    """Records the outcome of one call and acknowledges its message, all or nothing.

    Raises LeaseLostError when the lease is gone and the outcome is only a doubt.
    """
    crashpoints.reached("charge.called")
    with transaction.atomic():
        order = lock(lease.order_id)
        now = dbtime.read()
        if isinstance(outcome, NotSent) or (isinstance(outcome, Unknown) and not outcome.others):
            _doubt(order, lease, payment, outcome, actor, now)
        else:
            with Batch() as batch:
                bring_fact(order, payment, outcome, actor, now, batch)
            _acknowledge(lease)
        crashpoints.reached("settle.written")
    crashpoints.reached("settle.committed")
    CHARGES[type(outcome)].add()
    logger.info(
        "payment outcome",
        extra={
            "order": order.number,
            "outcome": type(outcome).__name__,
            "reason": getattr(outcome, "reason", ""),
            "status": str(order.status),
        },
    )
    return OrderStatus(order.status)


def bring_fact(
    order: Order,
    payment: PaymentView,
    fact: ChargeOutcome,
    actor: str,
    now: datetime,
    batch: Batch | None = None,
) -> PaymentView:
    """Writes down what is certain of a payment and lets it act on its order, which is locked.

    Only the newest payment moves its order on; an older one can but bring money that has to go back.
    """
    others: tuple[str, ...] = ()
    if isinstance(fact, Unknown) and fact.intent:
        others = fact.others
        fact = Succeeded(fact.intent)
    recorded = payments.record(payment.id, fact, batch)
    match fact:
        case Succeeded(intent=intent):
            money_came(order, recorded, actor, now, batch)
            for extra in {intent, *others} - {recorded.intent}:
                give_back(order, recorded, actor, now, intent=extra)
        case Declined() | Refused() if _newest(order, payment):
            _declined(order, recorded, actor, now)
        case ActionRequired() if recorded.status == PaymentStatus.ACTION_REQUIRED and _newest(order, payment):
            _action_required(order, recorded, actor, now)
        case ActionRequired() if recorded.status in {PaymentStatus.DECLINED, PaymentStatus.VOIDED}:
            promise_void(order, recorded, now, timedelta(0))
        case _:
            pass
    return recorded


def _newest(order: Order, payment: PaymentView) -> bool:
    return payments.latest(order.number).id == payment.id


def _doubt(
    order: Order, lease: Lease, payment: PaymentView, outcome: NotSent | Unknown, actor: str, now: datetime
) -> None:
    """Nothing is certain: the order waits. Raises LeaseLostError, and LeaseLostError means: say nothing."""
    if not outbox.holds(lease):
        raise outbox.LeaseLostError("a doubt of somebody who no longer holds the message")
    if OrderStatus(order.status) not in HOLDING or payments.get(payment.id).status not in OPEN:
        outbox.done(lease)  # meanwhile somebody brought certainty
        undo_loose(order, payments.record(payment.id, outcome), now)
        return
    recorded = payments.record(payment.id, outcome)
    tried = order.events.filter(kind__in=_TRIED).latest("id")
    if tried.kind != OrderAction.DEFER and order.status != OrderStatus.ACTION_REQUIRED:
        _defer(order, recorded, outcome, actor, now, tried.at)
    if not recorded.may_have_left:
        outbox.amend(lease, {**lease.payload, "begun": False})
    hand_back(lease, outcome, inline=actor == SHOPPER, due_at=order.reserve_until)


def _defer(
    order: Order,
    payment: PaymentView,
    outcome: NotSent | Unknown,
    actor: str,
    now: datetime,
    tried_at: datetime,
) -> None:
    """The order waits, and its shopper is told so, once for each attempt to pay; with a longer reserve if nothing
    has left, since then only time is missing.
    """
    if isinstance(outcome, NotSent):
        order.deferred_because = outcome.reason[:40]
        longer = tried_at + timedelta(seconds=settings.HOLDFAST.degraded_reserve_seconds)
        order.reserve_until = max(order.reserve_until, longer)
    else:
        order.deferred_because = "unknown"
    move(order, OrderAction.DEFER, actor=actor, now=now, detail={"reason": outcome.reason})
    notify.promise(order, notify.ACCEPTED, now, attempt=payment.reference)


def hand_back(
    lease: Lease,
    outcome: NotSent | Unknown,
    *,
    inline: bool = False,
    not_before: float = 0.0,
    due_at: datetime | None = None,
) -> None:
    """Returns a message whose call settled nothing; what that costs it depends on whose fault it was.

    Nothing sent, or a gateway that is known to be down: nothing. A gateway that answers others but not
    this one: a setback. An answer that settles nothing: a try. Raises LeaseLostError.
    """
    up = payments.gateway_seems_up(inline=inline)
    outbox.retry(
        lease,
        outcome.reason,
        after=outcome.retry_after,
        counts=isinstance(outcome, Unknown) and up,
        setback=isinstance(outcome, Unknown) and up and outcome.outage,
        not_before=not_before,
        due_at=due_at,
    )


def _acknowledge(lease: Lease) -> None:
    """A fact stands even if the message has passed to somebody else, who will find it settled."""
    try:
        outbox.done(lease)
    except outbox.LeaseLostError:
        logger.warning("fact reported without a lease", extra={"order_id": lease.order_id})


def money_came(
    order: Order, payment: PaymentView, actor: str, now: datetime, batch: Batch | None = None
) -> None:
    """Money was taken: the order is paid, or the money goes back if the order has ended otherwise."""
    if payment.status == PaymentStatus.REFUNDED or order.status in {OrderStatus.PAID, OrderStatus.REFUNDED}:
        if payment.status == PaymentStatus.SUCCEEDED and not _is_the_paying_one(order, payment):
            give_back(order, payment, actor, now)
        return
    if OrderStatus(order.status) in HOLDING and stock.consume(order.pk):
        move(order, OrderAction.PAY, actor=actor, now=now, detail={"payment": payment.reference}, batch=batch)
        notify.promise(order, notify.PAID, now, batch=batch)
        return
    give_back(order, payment, actor, now)


def _is_the_paying_one(order: Order, payment: PaymentView) -> bool:
    paid = order.events.filter(kind=OrderAction.PAY.value).first()
    return paid is not None and paid.detail.get("payment") == payment.reference


def give_back(
    order: Order, payment: PaymentView, actor: str, now: datetime, *, intent: str | None = None
) -> None:
    """Late or doubled money: a refund under a stable key is promised, once for each intent that took it."""
    which = intent or payment.intent or ""
    dedup = f"refund:{payment.id}"
    if which != payment.intent:  # its id may be longer than the column is wide
        dedup += f":{hashlib.sha256(which.encode()).hexdigest()[:32]}"
    if outbox.is_open(dedup):
        return
    outbox.append(
        outbox.REFUND,
        order.pk,
        dedup=dedup,
        due_at=now,
        now=now,
        payload={"payment": str(payment.id), "intent": which},
        again=True,
    )
    tell(order, "late_money", actor=actor, now=now, detail={"payment": payment.reference})


def _declined(order: Order, payment: PaymentView, actor: str, now: datetime) -> None:
    if OrderStatus(order.status) not in HOLDING:
        return
    move(order, OrderAction.DECLINE, actor=actor, now=now, detail={"reason": payment.reason})
    stock.release(order.pk)
    kind = notify.NOT_TAKEN if payment.refused else notify.DECLINED
    notify.promise(order, kind, now, attempt=payment.reference)


def _action_required(order: Order, payment: PaymentView, actor: str, now: datetime) -> None:
    if OrderStatus(order.status) not in HOLDING:
        promise_void(order, payment, now, timedelta(0))
        return
    if order.status == OrderStatus.ACTION_REQUIRED:
        return  # known already: asking again gives no more time
    order.reserve_until = now + timedelta(seconds=settings.HOLDFAST.action_required_seconds)
    move(order, OrderAction.REQUIRE_ACTION, actor=actor, now=now)
    notify.promise(order, notify.ACTION, now, attempt=payment.reference)
    promise_check(order, payment, f"check:{payment.id}", now, settings.HOLDFAST.action_poll_seconds)


def promise_check(order: Order, payment: PaymentView, dedup: str, now: datetime, after: float = 0.0) -> None:
    """The gateway is to be asked what became of a payment: by a worker, without taking money."""
    outbox.append(
        outbox.CHECK,
        order.pk,
        dedup=dedup,
        due_at=now,
        now=now,
        after=timedelta(seconds=after),
        payload={"payment": str(payment.id)},
        again=True,
    )


def undo_loose(order: Order, payment: PaymentView, now: datetime) -> None:
    """A payment that may have taken money beside an order that no longer wants any: find out and undo."""
    if OrderStatus(order.status) not in HOLDING and payment.status in OPEN and payment.may_have_left:
        promise_void(order, payment, now, timedelta(0))


def promise_void(order: Order, payment: PaymentView, now: datetime, after: timedelta) -> None:
    """The payment is no longer wanted, but a call of it may have left: find out and undo."""
    outbox.append(
        outbox.VOID,
        order.pk,
        dedup=f"void:{payment.id}",
        due_at=now,
        now=now,
        after=after,
        payload={"payment": str(payment.id)},
        again=True,
    )
