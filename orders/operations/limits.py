"""The limits on unpaid acceptance, agreed before the incident."""

from __future__ import annotations

from django.conf import settings
from django.db import connection
from django.db.models import Count, Sum

from orders.currencies import exponent
from orders.models import Order
from orders.states import OrderStatus
from payments import mode
from payments import operations as payments

_UNPAID = (OrderStatus.PLACED, OrderStatus.AWAITING_PAYMENT)
_LOCK = 0x484F4C44  # names the advisory lock


class UnpaidLimitError(Exception):
    """Taking this order unpaid would go beyond the agreed limits. `which` names the limit."""

    def __init__(self, which: str) -> None:
        super().__init__(f"limit on unpaid orders reached: {which}")
        self.which = which


def hold_now() -> bool:
    """Whether an order that is taken now is likely to stay unpaid: degraded, or the gateway in doubt here."""
    return mode.current().degraded or payments.in_doubt()


def hold(order: Order) -> None:
    """Holds the limits, one order at a time until the end of the transaction. Raises UnpaidLimitError."""
    config = settings.HOLDFAST
    unit = 10 ** exponent(config.base_currency)
    if order.base_total_minor > config.degraded_max_order_total * unit:
        raise UnpaidLimitError("order total")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    # One that is just being charged may come back unpaid.
    others = Order.objects.filter(status__in=_UNPAID).exclude(pk=order.pk)
    unpaid = others.aggregate(count=Count("pk"), total=Sum("base_total_minor", default=0))
    if unpaid["count"] >= config.degraded_max_unpaid_orders:
        raise UnpaidLimitError("number of orders")
    if unpaid["total"] + order.base_total_minor > config.degraded_max_unpaid_total * unit:
        raise UnpaidLimitError("sum of orders")
