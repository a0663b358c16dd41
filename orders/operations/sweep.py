"""The sweep for the stuck: nothing may wait with nobody trying, whatever happened to its message.

Every promise is written together with its cause, so this finds nothing unless a person, a restore or a
fault took a message away. What it finds it promises again, and says so loudly.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta

from django.db import transaction

from orders import outbox
from orders.models import Order, OutboxMessage
from orders.operations.pay import promise_charge
from orders.operations.settle import money_came, promise_check, promise_void
from orders.operations.steps import CLOCK, lock
from orders.states import HOLDING, UNPAID_ENDS, OrderStatus
from payments import dbtime, queries
from payments import operations as payments
from payments.operations import PaymentView
from payments.states import OPEN, PaymentStatus

logger = logging.getLogger(__name__)

_CHARGES = (OrderStatus.PLACED, OrderStatus.AWAITING_PAYMENT)
_ENDED = (*UNPAID_ENDS, OrderStatus.PAID)
LOOK_BACK = timedelta(days=2)
"""How long after its end an order is still compared with money that was taken for it."""


def sweep(limit: int = 500) -> int:
    """Promises again what waits with nobody trying; returns how much that was."""
    return sum(_repair(order_id) for order_id in _suspects(limit)) + _bury_strays(limit) + outbox.pull_in()


def _suspects(limit: int) -> Iterator[int]:
    """Orders that may need help: a look without locks."""
    open_messages = OutboxMessage.objects.filter(status__in=["PENDING", "DEAD"], order__isnull=False)
    charged = open_messages.filter(kind=outbox.CHARGE).values("order")
    yield from (
        Order.objects.filter(status__in=_CHARGES).exclude(pk__in=charged).values_list("pk", flat=True)[:limit]
    )
    checked = open_messages.filter(kind=outbox.CHECK).values("order")
    yield from (
        Order.objects.filter(status=OrderStatus.ACTION_REQUIRED)
        .exclude(pk__in=checked)
        .values_list("pk", flat=True)[:limit]
    )
    undone = open_messages.filter(kind__in=[outbox.VOID, outbox.REFUND]).values("order")
    beside_open_payments = Order.objects.filter(status__in=_ENDED, number__in=queries.order_keys(OPEN))
    beside_money = Order.objects.filter(
        status__in=UNPAID_ENDS,
        updated_at__gt=dbtime.read() - LOOK_BACK,
        number__in=queries.order_keys({PaymentStatus.SUCCEEDED}),
    )
    for ended in (beside_open_payments, beside_money):
        yield from ended.exclude(pk__in=undone).values_list("pk", flat=True)[:limit]


def _repair(order_id: int) -> int:
    with transaction.atomic():
        order = lock(order_id)
        missing = _missing(order)
        if not missing:
            return 0
        now = dbtime.read()
        payment = payments.latest(order.number)
        if order.status in _CHARGES:
            promise_charge(order, payment, now, None, again=True)
        elif order.status == OrderStatus.ACTION_REQUIRED:
            promise_check(order, payment, f"check:{payment.id}", now)
        else:
            for loose in missing:
                _tie_up(order, loose)
    logger.error("stuck work picked up", extra={"order": order.number, "status": str(order.status)})
    return 1


def _missing(order: Order) -> list[PaymentView]:
    """The payments of a locked order that wait with nobody trying."""
    messages = OutboxMessage.objects.filter(order=order, status__in=["PENDING", "DEAD"])
    if OrderStatus(order.status) in HOLDING:
        kind = outbox.CHECK if order.status == OrderStatus.ACTION_REQUIRED else outbox.CHARGE
        return [] if messages.filter(kind=kind).exists() else [payments.latest(order.number)]
    if messages.filter(kind__in=[outbox.VOID, outbox.REFUND]).exists() or order.status not in _ENDED:
        return []
    found = queries.payments_of([order.number])
    return [payment for _, payment in found if _is_loose(OrderStatus(order.status), payment)]


def _is_loose(status: OrderStatus, payment: PaymentView) -> bool:
    """Whether a payment of an ended order has still to be undone. A paid one keeps what it was paid with."""
    if status == OrderStatus.PAID and payment.status == PaymentStatus.SUCCEEDED:
        return False
    return payment.status not in {PaymentStatus.DECLINED, PaymentStatus.VOIDED, PaymentStatus.REFUNDED}


def _tie_up(order: Order, payment: PaymentView) -> None:
    now = dbtime.read()
    if payment.status == PaymentStatus.SUCCEEDED:
        money_came(order, payment, CLOCK, now)
    elif payment.status == PaymentStatus.NEW:
        payments.void(payment.id)
    else:
        promise_void(order, payment, now, timedelta(0))


def _bury_strays(limit: int) -> int:
    """Messages for a destination that nobody serves go to the dead letters, where people see them."""
    served = sorted(set(outbox.DESTINATIONS.values()))
    strays = OutboxMessage.objects.filter(status="PENDING").exclude(destination__in=served)
    return sum(
        outbox.bury(stray, "nobody serves this destination")
        for stray in list(strays.values_list("pk", flat=True)[:limit])
    )
