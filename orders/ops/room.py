"""All that the operations room shows, read at one moment: plain values out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Count, Min, QuerySet, Sum

from orders import outbox, queries
from orders.currencies import exponent
from orders.models import Order, OutboxMessage
from orders.operations import duty as steps
from orders.outbox import DeadLetter, Stats
from orders.pricing import Freshness, Money
from orders.queries import CurrencyOffer
from orders.states import HOLDING, OrderStatus
from payments import dbtime, duty, mode, replicas
from payments import queries as payments
from payments.duty import AuditLine
from payments.mode import Mode
from payments.operations import PaymentView
from payments.queries import MoneyCheckView
from payments.replicas import BoardRow

SOON = timedelta(minutes=10)
"""A reserve that ends within this is about to run out."""
SHOWN = 20
"""Rows of a list; the rest is a number."""
_RATE_OVER = 60.0
_TOO_LONG = timedelta(minutes=1)


@dataclass(frozen=True)
class Backlog:
    """Charges that workers have still to make. Seconds; `rate` is charges a second over the last minute."""

    count: int
    oldest_seconds: float
    rate: float
    planned_rate: float

    @property
    def drained_in(self) -> float | None:
        """Seconds to the end at the present rate; None when nothing moves."""
        return self.count / self.rate if self.rate > 0 else None

    @property
    def planned_in(self) -> float:
        """Seconds to the end at the agreed rate."""
        return self.count / self.planned_rate


@dataclass(frozen=True)
class Exposure:
    """Goods given on trust, against what was agreed before the incident."""

    orders: int
    orders_limit: int
    total: Money
    total_limit: Money
    order_limit: Money

    @property
    def percent(self) -> int:
        """Of the limit that is nearer."""
        shares = [
            part / whole if whole else 1.0
            for part, whole in (
                (self.orders, self.orders_limit),
                (self.total.minor, self.total_limit.minor),
            )
        ]
        return int(100 * max(shares))


@dataclass(frozen=True)
class ReserveRow:
    number: str
    status: OrderStatus
    total: Money
    reserve_until: datetime


@dataclass(frozen=True)
class LetterRow:
    letter: DeadLetter
    discardable: bool


@dataclass(frozen=True)
class UnknownRow:
    """A payment of which nobody knows whether it took money."""

    reference: str
    amount: Money
    reason: str


@dataclass(frozen=True)
class Room:
    """Everything on the page but the charts."""

    mode: Mode
    board: list[BoardRow]
    backlog: Backlog
    messages: dict[str, Stats]
    exposure: Exposure
    ending: list[ReserveRow]
    ending_count: int
    letters: list[LetterRow]
    letters_count: int
    checks: list[MoneyCheckView]
    checks_count: int
    unknown: list[UnknownRow]
    unknown_count: int
    rates: list[CurrencyOffer]
    audit: list[AuditLine]
    read_at: datetime

    @property
    def live_workers(self) -> int:
        return sum(row.kind == "worker" and not row.dead for row in self.board)


def read() -> Room:
    """A dozen small queries."""
    ending = _ending()
    letters = outbox.dead_letters()
    unknown = payments.unknown_since(_TOO_LONG)
    return Room(
        mode=mode.current(),
        board=replicas.board(),
        backlog=backlog(),
        messages=outbox.stats(),
        exposure=exposure(),
        ending=[_reserve(order) for order in ending.order_by("reserve_until")[:SHOWN]],
        ending_count=ending.count(),
        letters=_letter_rows(letters[:SHOWN]),
        letters_count=len(letters),
        checks=payments.open_checks(SHOWN),
        checks_count=payments.count_open_checks(),
        unknown=[_unknown(payment) for payment in unknown[:SHOWN]],
        unknown_count=len(unknown),
        rates=[offer for offer in queries.currency_offers() if _remarkable(offer)],
        audit=duty.recent(),
        read_at=dbtime.read(),
    )


@dataclass(frozen=True)
class Worries:
    """How many cases of each kind somebody should look at, for the metrics."""

    reserves_ending: int
    money_checks: int
    unknown_payments: int


def worries() -> Worries:
    """Three counts."""
    return Worries(_ending().count(), payments.count_open_checks(), payments.count_unknown(_TOO_LONG))


def _ending() -> QuerySet[Order]:
    return Order.objects.filter(
        status__in=[s.value for s in HOLDING], reserve_until__lte=dbtime.read() + SOON
    )


def backlog() -> Backlog:
    """How much waits, and how quickly it goes."""
    now = dbtime.read()
    charges = OutboxMessage.objects.filter(kind=outbox.CHARGE)
    waiting = charges.filter(status="PENDING").aggregate(count=Count("pk"), oldest=Min("created_at"))
    done = charges.filter(status="DONE", finished_at__gte=now - timedelta(seconds=_RATE_OVER))
    # Charges made within their own request were never part of the backlog.
    late = done.filter(created_at__lt=now - timedelta(seconds=_RATE_OVER)) | done.filter(
        payload__deferred=True
    )
    oldest = waiting["oldest"]
    return Backlog(
        count=waiting["count"],
        oldest_seconds=max(0.0, (now - oldest).total_seconds()) if oldest else 0.0,
        rate=late.count() / _RATE_OVER,
        planned_rate=settings.HOLDFAST.replay_rate,
    )


def exposure() -> Exposure:
    """What was accepted unpaid so far."""
    config = settings.HOLDFAST
    unit = 10 ** exponent(config.base_currency)
    unpaid = Order.objects.filter(status=OrderStatus.AWAITING_PAYMENT).aggregate(
        count=Count("pk"), total=Sum("base_total_minor", default=0)
    )
    return Exposure(
        orders=unpaid["count"],
        orders_limit=config.degraded_max_unpaid_orders,
        total=Money(int(unpaid["total"]), config.base_currency),
        total_limit=Money(config.degraded_max_unpaid_total * unit, config.base_currency),
        order_limit=Money(config.degraded_max_order_total * unit, config.base_currency),
    )


def _reserve(order: Order) -> ReserveRow:
    return ReserveRow(
        order.number, OrderStatus(order.status), Money(order.total_minor, order.currency), order.reserve_until
    )


def _unknown(payment: PaymentView) -> UnknownRow:
    return UnknownRow(payment.reference, Money(payment.amount_minor, payment.currency), payment.reason)


def _letter_rows(letters: list[DeadLetter]) -> list[LetterRow]:
    states = dict(
        Order.objects.filter(number__in=[letter.order for letter in letters if letter.order]).values_list(
            "number", "status"
        )
    )
    return [
        LetterRow(letter, steps.discardable(letter.kind, states.get(letter.order or "")))
        for letter in letters
    ]


def _remarkable(offer: CurrencyOffer) -> bool:
    if offer.rate is None:
        return not offer.offered
    return offer.rate.freshness is not Freshness.FRESH or not offer.offered


@dataclass(frozen=True)
class Candidate:
    """An order about to be cancelled by staff, as the form shows it."""

    number: str
    status: OrderStatus
    total: Money
    reserve_until: datetime
    seen: str

    @property
    def can_cancel(self) -> bool:
        return self.status in HOLDING


def candidate(number: str) -> Candidate | None:
    """The order of that number."""
    order = Order.objects.filter(number=number).first()
    if order is None:
        return None
    row = _reserve(order)
    return Candidate(row.number, row.status, row.total, row.reserve_until, steps.version_of(order))


def money_check(check_id: int) -> MoneyCheckView | None:
    """One open case about money."""
    return next((check for check in payments.open_checks() if check.id == check_id), None)


def letter(message_id: int) -> DeadLetter | None:
    """One dead letter."""
    return next((letter for letter in outbox.dead_letters() if letter.id == message_id), None)
