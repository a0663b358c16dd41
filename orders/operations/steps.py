"""One transition, one function: the row is locked, (state, action) looked up, state and event written."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from orders.models import Order, OrderEvent
from orders.states import TRANSITIONS, OrderAction, OrderStatus
from payments import batch as batches
from payments.batch import Batch
from payments.states import advance

SHOPPER, WORKER, CLOCK = "shopper", "worker", "clock"
"""Who acts in a timeline, when it is no named person."""


def lock(order_id: int) -> Order:
    """The order, locked until the end of the transaction. Every write of an order starts here."""
    return Order.objects.select_for_update(of=("self",)).get(pk=order_id)


def move(
    order: Order,
    action: OrderAction,
    *,
    actor: str,
    now: datetime,
    detail: Mapping[str, Any] | None = None,
    batch: Batch | None = None,
) -> OrderStatus:
    """Takes a locked order one step on and writes the timeline. Saves the order's other changes too.

    Raises IllegalTransitionError for a step that the table does not hold; then nothing is changed.
    """
    before = OrderStatus(order.status)
    after = advance(TRANSITIONS, before, action)
    order.status = after
    batches.save(order, batch)
    tell(order, action.value, actor=actor, now=now, before=before, after=after, detail=detail, batch=batch)
    return after


def tell(
    order: Order,
    kind: str,
    *,
    actor: str,
    now: datetime,
    before: str = "",
    after: str = "",
    detail: Mapping[str, Any] | None = None,
    batch: Batch | None = None,
) -> None:
    """Adds a line to the order's timeline."""
    event = OrderEvent(
        order=order,
        at=now,
        kind=kind,
        from_status=before,
        to_status=after,
        actor=actor[:150],
        detail=dict(detail or {}),
    )
    batches.insert(event, batch)
