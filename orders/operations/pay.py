"""Taking the money of an order: inline, by replay and by "pay now" through the same steps.

Commit the intent, call, commit the outcome. The lease on the order's charge message says whose
turn it is; the payment's idempotency key makes a doubled call harmless.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from datetime import datetime, timedelta
from enum import Enum

from django.conf import settings
from django.db import transaction
from django.urls import reverse

from orders import outbox
from orders.models import Order
from orders.operations import limits, stock
from orders.operations.settle import settle, undo_loose
from orders.operations.steps import SHOPPER, WORKER, move
from orders.outbox import Lease, LeaseLostError, PoisonError
from orders.states import HOLDING, OrderAction, OrderStatus
from payments import crashpoints, dbtime, mode, probing, throttle
from payments import operations as payments
from payments.batch import Batch
from payments.operations import PaymentView
from payments.outcomes import AlreadyCaptured, Cancelled
from payments.queries import newest
from payments.states import PaymentStatus
from payments.storage import DATABASE_ERRORS, is_storage_failure
from resilience.deadline import Deadline

logger = logging.getLogger(__name__)

SHORTEST_CALL = 1.0
"""Seconds a reserve must have left for a worker to begin a call."""
_CHARGEABLE = frozenset(
    {PaymentStatus.NEW, PaymentStatus.PROCESSING, PaymentStatus.UNKNOWN, PaymentStatus.ACTION_REQUIRED}
)


def take_money(lease: Lease, payment: PaymentView, deadline: Deadline, actor: str) -> OrderStatus:
    """The call and its outcome. The intent must be committed before."""
    outcome = payments.call(payment, deadline, inline=actor == SHOPPER)
    return settle(lease, payment, outcome, actor)


def deliver_charge(lease: Lease) -> None:
    """A worker's turn at an order's charge: replay of a deferred one, or finding out an unknown one."""
    if not mode.current().degraded:
        _replay(lease, settings.HOLDFAST.replay_rate)
        return
    # The gateway is down, as far as anybody knows: this charge finds out, with few others at a time.
    with probing.place() as free:
        if free:
            _replay(lease, min(throttle.PROBING_RATE, settings.HOLDFAST.replay_rate))
        else:
            with transaction.atomic():
                outbox.retry(lease, "enough others ask whether the gateway is back", counts=False)


def _replay(lease: Lease, rate: float) -> None:
    config = settings.HOLDFAST
    wait = throttle.reserve(
        throttle.REPLAY, rate, config.replay_ramp_seconds, longest_wait=config.outbox_lease_seconds / 3
    )
    if wait is None:
        with transaction.atomic():
            outbox.retry(lease, "waiting for a place in the replay", counts=False)
        return
    time.sleep(wait)
    if not lease.payload.get("begun") and mode.current().held:
        with transaction.atomic():  # a person may have said so while this one waited for its place
            outbox.retry(lease, "held back by a person", counts=False)
        return
    started = _begin(lease)
    if started is not None:
        crashpoints.reached("charge.begun")
        payment, seconds = started
        take_money(lease, payment, Deadline.after_ms(seconds * 1000), WORKER)


def _begin(lease: Lease) -> tuple[PaymentView, float] | None:
    """Writes down that the call is about to be made and how long it may take; None when it must not be."""
    with transaction.atomic():
        order = Order.objects.select_for_update(of=("self",)).filter(pk=lease.order_id).first()
        if order is None:
            raise PoisonError("the order does not exist")
        try:
            payment = payments.latest(order.number)
        except LookupError:
            raise PoisonError("the order has no payment") from None
        if OrderStatus(order.status) not in HOLDING or payment.status not in _CHARGEABLE:
            outbox.cancel(lease, f"nothing to charge: the order is {order.status}")
            undo_loose(order, payment, dbtime.read())
            return None
        left = (order.reserve_until - dbtime.read()).total_seconds()
        if left < SHORTEST_CALL:
            # The call could not end before the reserve does: the expiry will cancel the order.
            outbox.retry(lease, "the reserve ends before the call could", counts=False)
            return None
        seconds = min(left, settings.HOLDFAST.worker_budget_ms / 1000)
        outbox.amend(lease, {**lease.payload, "begun": True})
        return payments.begin(payment.id), seconds


def take_money_at_once(
    order: Order, lease: Lease, payment: PaymentView, deadline: Deadline
) -> OrderStatus | None:
    """For a shopper who waits. None: a worker goes on with it, by the message in the outbox."""
    try:
        return take_money(lease, payment, deadline, SHOPPER)
    except LeaseLostError:
        logger.warning("a worker took the charge over", extra={"order": order.number})
    except DATABASE_ERRORS as error:
        if not is_storage_failure(error):
            raise
        logger.exception("the outcome of a charge could not be written down", extra={"order": order.number})
    return None


class PayNow(Enum):
    """What became of a shopper's wish to pay at once."""

    CALLED = "called"
    BUSY = "busy"
    TOO_LATE = "too late"
    SOLD_OUT = "sold out"
    UNCERTAIN = "uncertain"
    UNPAID_LIMIT = "unpaid limit"
    NOT_CALLED_OFF = "not called off"


def pay_now(order_token: str, method: str, deadline: Deadline) -> PayNow:
    """The shopper pays an order that waits for its payment, or tries another card after a decline.

    Never begins a second charge while an earlier one may still take money: one that waits for the bank's
    confirmation is cancelled at the gateway first.
    """
    if stale := _waits_for_the_bank(order_token):
        if not _fits(order_token):
            return PayNow.UNPAID_LIMIT
        outcome = payments.cancel_intent(*stale, deadline, inline=True)
        if not isinstance(outcome, Cancelled):
            return PayNow.UNCERTAIN if isinstance(outcome, AlreadyCaptured) else PayNow.NOT_CALLED_OFF
        crashpoints.reached("switch.cancelled")
    with transaction.atomic():
        order = Order.objects.select_for_update(of=("self",)).get(token=order_token)
        turn = _turn(order, payments.latest(order.number), method, deadline, stale[0] if stale else None)
    if isinstance(turn, PayNow):
        return turn
    lease, payment = turn
    take_money_at_once(order, lease, payment, deadline)
    return PayNow.CALLED


def _turn(
    order: Order, payment: PaymentView, method: str, deadline: Deadline, stale: PaymentView | None
) -> PayNow | tuple[Lease, PaymentView]:
    """Whose turn it is: the shopper's, with a lease and the payment to call with, or not. `stale` is a
    payment that the shopper had not confirmed and that is cancelled at the gateway now.
    """
    lease_for = timedelta(seconds=settings.HOLDFAST.inline_lease_seconds)
    now = dbtime.read()
    unchanged = (
        stale is not None and payment.id == stale.id and payment.status == PaymentStatus.ACTION_REQUIRED
    )
    if unchanged and order.status == OrderStatus.ACTION_REQUIRED:
        return _switch(order, payment, method, now, lease_for)
    if order.status == OrderStatus.DECLINED and payment.status == PaymentStatus.DECLINED:
        try:
            return _second_try(order, method, now, lease_for)
        except stock.SoldOutError:
            return PayNow.SOLD_OUT
        except limits.UnpaidLimitError:
            return PayNow.UNPAID_LIMIT
    if order.status == OrderStatus.AWAITING_PAYMENT and payment.status == PaymentStatus.NEW:
        if order.reserve_until <= now + timedelta(seconds=deadline.remaining()):
            return PayNow.TOO_LATE
        taken = outbox.take_over(order.pk, outbox.CHARGE, lease_for)
        return PayNow.BUSY if taken is None else (taken, _with_method(order, payment, method))
    return PayNow.UNCERTAIN if OrderStatus(order.status) in HOLDING else PayNow.TOO_LATE


def _fits(order_token: str) -> bool:
    try:
        with transaction.atomic():
            limits.hold_now(Order.objects.get(token=order_token))
    except limits.UnpaidLimitError:
        return False
    return True


def _waits_for_the_bank(order_token: str) -> tuple[PaymentView, str] | None:
    """The payment of an order whose shopper has not confirmed yet, and its intent."""
    order = Order.objects.filter(token=order_token, status=OrderStatus.ACTION_REQUIRED).first()
    payment = newest(order.number) if order else None
    if payment is None or payment.status != PaymentStatus.ACTION_REQUIRED or not payment.intent:
        return None
    return payment, payment.intent


def _switch(
    order: Order, old: PaymentView, method: str, now: datetime, lease_for: timedelta
) -> tuple[Lease, PaymentView]:
    """Another card in place of one that waited for the bank and can take nothing any more."""
    payments.void(old.id)
    order.reserve_until = max(order.reserve_until, now + timedelta(seconds=settings.HOLDFAST.reserve_seconds))
    move(order, OrderAction.RETRY, actor=SHOPPER, now=now)
    payment = create_payment(order, method, started=True)
    return promise_charge(order, payment, now, lease_for), payment


def _with_method(order: Order, payment: PaymentView, method: str) -> PaymentView:
    """The payment to call with: the same one, or a new one in its place if the card differs.

    The old one has certainly never left, so voiding it needs no call; its key is never used again.
    """
    if method == payment.method:
        return payments.begin(payment.id)
    payments.void(payment.id)
    return create_payment(order, method, started=True)


def _second_try(order: Order, method: str, now: datetime, lease_for: timedelta) -> tuple[Lease, PaymentView]:
    """After a decline: the goods are reserved anew and a new payment takes the place of the old."""
    wanted: Counter[str] = Counter()
    for line in order.lines.all():
        wanted[line.sku] += line.quantity
    with transaction.atomic():
        limits.hold_now(order)
        stock.reserve(order, wanted)
    order.reserve_until = now + timedelta(seconds=settings.HOLDFAST.reserve_seconds)
    move(order, OrderAction.RETRY, actor=SHOPPER, now=now)
    payment = create_payment(order, method, started=True)
    lease = promise_charge(order, payment, now, lease_for)
    return lease, payment


def create_payment(
    order: Order,
    method: str,
    *,
    started: bool,
    made_at: datetime | None = None,
    batch: Batch | None = None,
) -> PaymentView:
    """The payment of an order, over the amount and currency accepted when it was placed."""
    back = f"{settings.SITE_URL}{reverse('order-back', args=[order.token])}"
    return payments.create(
        order.number,
        order.total_minor,
        order.currency,
        method,
        return_url=back,
        started=started,
        made_at=made_at,
        batch=batch,
    )


def promise_charge(
    order: Order,
    payment: PaymentView,
    now: datetime,
    lease_for: timedelta | None,
    *,
    again: bool = False,
    batch: Batch | None = None,
) -> Lease:
    """The outbox message of a payment's charge; leased to the caller if it will call at once."""
    return outbox.append(
        outbox.CHARGE,
        order.pk,
        dedup=f"charge:{payment.id}",
        due_at=order.reserve_until,
        now=now,
        payload={"payment": str(payment.id), "deferred": lease_for is None, "begun": lease_for is not None},
        lease_for=lease_for,
        again=again,
        batch=batch,
    )
