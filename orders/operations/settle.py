"""From an outcome of the gateway to the order, its stock, its promises: one transaction.

A holder whose lease was lost may still bring facts (money taken, declined, action needed), since
they are true whoever asked; doubts of a lost holder are dropped.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import assert_never

from django.conf import settings
from django.db import transaction

from orders import outbox
from orders.models import Order
from orders.operations import notify, stock
from orders.operations.steps import lock, move, tell
from orders.outbox import Lease
from orders.states import HOLDING, OrderAction, OrderStatus
from payments import dbtime
from payments import operations as payments
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
from payments.states import PaymentStatus

logger = logging.getLogger(__name__)

MONEY_CHECK_AFTER = 5


def settle(lease: Lease, payment: PaymentView, outcome: ChargeOutcome, actor: str) -> OrderStatus:
    """Records the outcome of one call and acknowledges its message, all or nothing.

    Raises LeaseLostError when the lease is gone and the outcome is only a doubt.
    """
    with transaction.atomic():
        order = lock(lease.order_id)
        now = dbtime.read()
        recorded = payments.record(payment.id, outcome)
        match outcome:
            case Succeeded():
                money_came(order, recorded, actor, now)
            case Declined() | Refused():
                _declined(order, recorded, actor, now)
            case ActionRequired():
                _action_required(order, recorded, actor, now)
            case NotSent(reason=reason):
                _not_sent(order, lease, reason, outcome.retry_after, actor, now)
            case Unknown(reason=reason):
                _unknown(order, lease, reason, outcome.retry_after, actor, now)
            case _:
                assert_never(outcome)
        if not isinstance(outcome, NotSent | Unknown):
            _acknowledge(lease)
    logger.info(
        "payment outcome",
        extra={"order": order.number, "outcome": type(outcome).__name__, "status": str(order.status)},
    )
    return OrderStatus(order.status)


def _acknowledge(lease: Lease) -> None:
    """A fact stands even if the message has passed to somebody else, who will find it settled."""
    try:
        outbox.done(lease)
    except outbox.LeaseLostError:
        logger.warning("fact reported without a lease", extra={"order_id": lease.order_id})


def money_came(order: Order, payment: PaymentView, actor: str, now: datetime) -> None:
    """Money was taken: the order is paid, or the money goes back if the order has ended otherwise."""
    if payment.status == PaymentStatus.REFUNDED or order.status in {OrderStatus.PAID, OrderStatus.REFUNDED}:
        if payment.status == PaymentStatus.SUCCEEDED and not _is_the_paying_one(order, payment):
            give_back(order, payment, actor, now)
        return
    if OrderStatus(order.status) in HOLDING and stock.consume(order.pk):
        move(order, OrderAction.PAY, actor=actor, now=now, detail={"payment": payment.reference})
        notify.promise(order, notify.PAID, now)
        return
    give_back(order, payment, actor, now)


def _is_the_paying_one(order: Order, payment: PaymentView) -> bool:
    paid = order.events.filter(kind=OrderAction.PAY.value).first()
    return paid is not None and paid.detail.get("payment") == payment.reference


def give_back(order: Order, payment: PaymentView, actor: str, now: datetime) -> None:
    """Late or doubled money: a refund under a stable key is promised, once."""
    outbox.append(
        outbox.REFUND,
        order.pk,
        dedup=f"refund:{payment.id}",
        due_at=now,
        now=now,
        payload={"payment": str(payment.id)},
    )
    tell(order, "late_money", actor=actor, now=now, detail={"payment": payment.reference})


def _declined(order: Order, payment: PaymentView, actor: str, now: datetime) -> None:
    if OrderStatus(order.status) not in HOLDING:
        return
    move(order, OrderAction.DECLINE, actor=actor, now=now, detail={"reason": payment.reason})
    stock.release(order.pk)
    notify.promise(order, notify.DECLINED, now)


def _action_required(order: Order, payment: PaymentView, actor: str, now: datetime) -> None:
    if OrderStatus(order.status) not in HOLDING:
        promise_void(order, payment, now, timedelta(0))
        return
    order.reserve_until = now + timedelta(seconds=settings.HOLDFAST.action_required_seconds)
    move(order, OrderAction.REQUIRE_ACTION, actor=actor, now=now)
    notify.promise(order, notify.ACTION, now)


def promise_void(order: Order, payment: PaymentView, now: datetime, after: timedelta) -> None:
    """The payment is no longer wanted, but a call of it may have left: find out and undo, once."""
    outbox.append(
        outbox.VOID,
        order.pk,
        dedup=f"void:{payment.id}",
        due_at=now,
        now=now,
        after=after,
        payload={"payment": str(payment.id)},
    )


def _not_sent(
    order: Order, lease: Lease, reason: str, retry_after: float | None, actor: str, now: datetime
) -> None:
    """Nothing left: the order waits with a longer reserve, and the try does not count."""
    if OrderStatus(order.status) not in HOLDING:
        return
    if order.status == OrderStatus.PLACED:
        order.deferred_because = reason[:40]
        longer = order.created_at + timedelta(seconds=settings.HOLDFAST.degraded_reserve_seconds)
        order.reserve_until = max(order.reserve_until, longer)
        move(order, OrderAction.DEFER, actor=actor, now=now, detail={"reason": reason})
        notify.promise(order, notify.ACCEPTED, now)
    outbox.retry(lease, reason, after=retry_after, counts=False)


def _unknown(
    order: Order, lease: Lease, reason: str, retry_after: float | None, actor: str, now: datetime
) -> None:
    """Something may have left: the order waits, the gateway is asked again later under the same key."""
    if OrderStatus(order.status) not in HOLDING:
        return
    if order.status == OrderStatus.PLACED:
        order.deferred_because = "unknown"
        move(order, OrderAction.DEFER, actor=actor, now=now, detail={"reason": reason})
        notify.promise(order, notify.ACCEPTED, now)
    outbox.retry(lease, reason, after=retry_after)
