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
from payments.operations import Outlook

_UNPAID = (OrderStatus.PLACED, OrderStatus.AWAITING_PAYMENT)
_LOCK = 0x484F4C44  # names the advisory lock


class UnpaidLimitError(Exception):
    """Taking this order unpaid would go beyond the agreed limits. `which` names the limit."""

    def __init__(self, which: str) -> None:
        super().__init__(f"limit on unpaid orders reached: {which}")
        self.which = which


def outlook(*, degraded: bool) -> Outlook:
    """What an order that is taken now may expect of its charge, in this mode and this process."""
    return Outlook.SHUT if degraded else payments.outlook()


def hold_now(order: Order) -> None:
    """`hold` for an order that exists already, in the mode of this moment."""
    hold(order, outlook(degraded=mode.current().degraded))


def hold(order: Order, expected: Outlook) -> None:
    """Holds the limits for an order that may well stay unpaid, one at a time until the end of the transaction.

    As long as the gateway is only doubted, one order may go beyond them while no other is unpaid: without a
    charge a doubt would never end. Raises UnpaidLimitError.
    """
    if expected is Outlook.GOOD:
        return
    config = settings.HOLDFAST
    unit = 10 ** exponent(config.base_currency)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    # One that is just being charged may come back unpaid.
    others = Order.objects.filter(status__in=_UNPAID).exclude(pk=order.pk)
    unpaid = others.aggregate(count=Count("pk"), total=Sum("base_total_minor", default=0))
    if expected is Outlook.DOUBTFUL and unpaid["count"] == 0:
        return
    if order.base_total_minor > config.degraded_max_order_total * unit:
        raise UnpaidLimitError("order total")
    if unpaid["count"] >= config.degraded_max_unpaid_orders:
        raise UnpaidLimitError("number of orders")
    if unpaid["total"] + order.base_total_minor > config.degraded_max_unpaid_total * unit:
        raise UnpaidLimitError("sum of orders")
