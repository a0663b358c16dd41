"""The invariants that hold at any moment, checked against the database and the gateway's ledger.

The two are not read at one moment. What is charged in between looks like a fault to one look, but not to a second
that begins later: `confirmed` calls a fault what both have seen.

I1  at most one un-refunded charge per order, over the order's amount and currency
I2  every charge belongs to an order that is paid or whose money is being returned or looked at;
    every paid order has a charge
I3  per product: what is reserved equals what open orders hold, what is sold equals what paid orders took
I4  no order says "paid" whose payment has not succeeded; a stale rate is frozen with its date
I5  is about answers in time: measured by tests and `make smoke`, not by an audit
I6  no message waits with nobody trying: pending rows become due, waiting orders have a message
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import Sum

from orders import outbox
from orders.models import Order, OutboxMessage, Reservation, StockItem
from orders.states import HOLDING, OrderStatus
from payments import dbtime, mode
from payments import queries as payments
from payments.operations import PaymentView
from payments.states import EffectiveMode, PaymentStatus

NOBODY_TRIES_AFTER = timedelta(seconds=300)


@dataclass(frozen=True)
class Violation:
    """One sentence about one broken invariant."""

    invariant: str
    text: str


@dataclass(frozen=True)
class LedgerCharge:
    """A charge as the gateway's own books show it."""

    reference: str
    amount: int
    currency: str
    refunded: int
    intent: str = ""


def confirmed(read_ledger: Callable[[], list[LedgerCharge] | None]) -> list[Violation]:
    """The violations of a shop at work. Call outside of a transaction. Raises what `read_ledger` raises."""
    found = _look(read_ledger)
    return [violation for violation in _look(read_ledger) if violation in found] if found else []


def _look(read_ledger: Callable[[], list[LedgerCharge] | None]) -> list[Violation]:
    ledger = read_ledger()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return audit(ledger)


def audit(ledger: list[LedgerCharge] | None) -> list[Violation]:
    """All violations; without a ledger the checks against the gateway are left out."""
    orders = {order.number: order for order in Order.objects.all()}
    paid_by: dict[str, list[PaymentView]] = defaultdict(list)
    for order_key, payment in payments.all_payments():
        paid_by[order_key].append(payment)
    found = [*_stock(), *_payments(orders, paid_by), *_messages()]
    if ledger is not None:
        found.extend(_ledger(orders, paid_by, ledger))
    return sorted(found, key=lambda violation: violation.invariant)


def _ledger(
    orders: dict[str, Order], paid_by: dict[str, list[PaymentView]], ledger: list[LedgerCharge]
) -> Iterator[Violation]:
    order_of = {payment.reference: key for key, found in paid_by.items() for payment in found}
    payment_of = {payment.reference: payment for found in paid_by.values() for payment in found}
    kept: dict[str, int] = defaultdict(int)
    staying: dict[str, int] = defaultdict(int)
    going_back = _going_back()
    checked = {check.subject for check in payments.open_checks(limit=10_000)}
    for charge in ledger:
        number = order_of.get(charge.reference)
        if number is None or number not in orders:
            if charge.intent not in checked:
                yield Violation("I2", f"charge {charge.reference} belongs to no order")
            continue
        if charge.refunded >= charge.amount:
            continue
        payment = payment_of[charge.reference]
        kept[number] += 1
        staying[number] += (str(payment.id), charge.intent) not in going_back
        yield from _charge(orders[number], payment, charge, number in checked)
    for number, count in staying.items():
        if count > 1 and number not in checked:
            yield Violation("I1", f"{number}: charged {count} times")
    for number, order in orders.items():
        if order.status == OrderStatus.PAID and not kept[number]:
            yield Violation("I2", f"{number} is paid but the gateway has no charge")


def _charge(order: Order, payment: PaymentView, charge: LedgerCharge, checked: bool) -> Iterator[Violation]:
    """One charge whose money was kept, against the order it belongs to. `checked`: staff has the case."""
    number, due = order.number, _wire_amount(order)
    if (charge.amount, charge.currency.upper()) != (due, order.currency):
        yield Violation(
            "I1",
            f"{number}: charged {charge.amount} {charge.currency}, ordered {due} {order.currency}",
        )
    if checked or _looked_after(order, payment):
        return
    if order.status != OrderStatus.PAID:
        yield Violation("I2", f"{number}: money was taken but the order is {order.status}")
    elif charge.intent and payment.intent != charge.intent:
        yield Violation("I2", f"{number}: the gateway's id of the charge is not noted")


def _wire_amount(order: Order) -> int:
    from payments.minor_units import to_wire

    return to_wire(order.total_minor, order.currency)


def _looked_after(order: Order, payment: PaymentView) -> bool:
    """Somebody is at it: a message pending or visible to staff as a dead letter."""
    return (
        OutboxMessage.objects.filter(order=order, status__in=["PENDING", "DEAD"])
        .exclude(kind="notify")
        .exists()
    )


def _going_back() -> set[tuple[str, str]]:
    """Payment and intent of each charge whose refund is under way, or before staff."""
    promised = OutboxMessage.objects.filter(kind="refund", status__in=["PENDING", "DEAD"])
    return {
        (str(payload.get("payment")), str(payload.get("intent")))
        for payload in promised.values_list("payload", flat=True)
        if isinstance(payload, dict)
    }


def _payments(orders: dict[str, Order], paid_by: dict[str, list[PaymentView]]) -> Iterator[Violation]:
    for number, order in orders.items():
        found = paid_by.get(number, [])
        if not found:
            yield Violation("I2", f"{number} has no payment")
        succeeded = [payment for payment in found if payment.status == PaymentStatus.SUCCEEDED]
        if order.status == OrderStatus.PAID and not succeeded:
            yield Violation("I4", f"{number} says paid but no payment succeeded")
        for payment in found:
            if (payment.amount_minor, payment.currency) != (order.total_minor, order.currency):
                yield Violation("I1", f"{number}: payment {payment.reference} is over another amount")
        if order.rate_stale and order.rate_date is None:
            yield Violation("I4", f"{number}: a stale rate without its date")


def _stock() -> Iterator[Violation]:
    held = _units(Reservation.Status.HELD)
    consumed = _units(Reservation.Status.CONSUMED)
    for item in StockItem.objects.all():
        if item.reserved != held.get(item.sku, 0):
            yield Violation(
                "I3", f"{item.sku}: {item.reserved} reserved, orders hold {held.get(item.sku, 0)}"
            )
        if item.sold != consumed.get(item.sku, 0):
            yield Violation("I3", f"{item.sku}: {item.sold} sold, orders took {consumed.get(item.sku, 0)}")
        if item.reserved > item.on_hand:
            yield Violation("I3", f"{item.sku}: oversold")
    holding = [s.value for s in HOLDING]
    loose = Reservation.objects.filter(status="HELD").exclude(order__status__in=holding)
    for reservation in loose.select_related("order"):
        yield Violation(
            "I3", f"{reservation.order.number} is {reservation.order.status} but holds {reservation.sku}"
        )
    wrong = Reservation.objects.filter(status="CONSUMED").exclude(order__status__in=["PAID", "REFUNDED"])
    for reservation in wrong.select_related("order"):
        yield Violation(
            "I3", f"{reservation.order.number} is {reservation.order.status} but took {reservation.sku}"
        )


def _units(status: str) -> dict[str, int]:
    rows = Reservation.objects.filter(status=status).values("sku").annotate(n=Sum("quantity"))
    return {row["sku"]: row["n"] for row in rows}


def _messages() -> Iterator[Violation]:
    now = dbtime.read()
    late: Any = OutboxMessage.objects.filter(status="PENDING", available_at__lt=now - NOBODY_TRIES_AFTER)
    in_force = mode.current()
    if in_force.held or in_force.effective != EffectiveMode.NORMAL:
        late = late.exclude(outbox.NOT_BEGUN)  # they wait for the gateway, for their turn or for a person
    for message in late.select_related("order"):
        yield Violation("I6", f"message {message.pk} ({message.kind}) has been due for a long time")
    promised = OutboxMessage.objects.filter(status__in=["PENDING", "DEAD"], order__isnull=False)
    charged = promised.filter(kind="charge").values("order")
    for order in Order.objects.filter(status__in=["PLACED", "AWAITING_PAYMENT"]).exclude(pk__in=charged):
        yield Violation("I6", f"{order.number} waits for its payment with nobody trying")
    yield from _loose_ends()
    overdue = Order.objects.filter(
        status__in=[s.value for s in HOLDING], reserve_until__lt=now - NOBODY_TRIES_AFTER
    )
    for order in overdue:
        yield Violation("I6", f"{order.number} should have expired")


def _loose_ends() -> Iterator[Violation]:
    """Payments that may have left, of orders that have ended, with nobody finding out."""
    promised = OutboxMessage.objects.filter(
        status__in=["PENDING", "DEAD"], kind__in=["void", "refund"], order__isnull=False
    )
    ended = Order.objects.filter(status__in=["CANCELLED", "DECLINED"]).exclude(
        pk__in=promised.values("order")
    )
    settled = {PaymentStatus.DECLINED, PaymentStatus.VOIDED, PaymentStatus.REFUNDED}
    for number, payment in payments.payments_of(ended.values_list("number", flat=True)):
        if payment.status not in settled:
            yield Violation(
                "I6", f"{number} has ended but its payment is {payment.status} with nobody trying"
            )
