"""Placing an order: quote, one transaction, then the money.

The commit comes before any money call. Whatever dies after it leaves a message in the outbox whose
lease runs out, and a worker goes on with the same idempotency key.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from orders.models import IdempotencyRecord, Order, OrderLine, new_token
from orders.operations import limits, notify, stock
from orders.operations.limits import UnpaidLimitError
from orders.operations.pay import create_payment, promise_charge, take_money_at_once
from orders.operations.quoting import CatalogDownError, CurrencyUnavailableError, PricedCart, quote_cart
from orders.operations.steps import SHOPPER, move, tell
from orders.outbox import Lease
from orders.pricing import Freshness, Money, Quote
from orders.queries import CartView
from orders.states import OrderAction, OrderStatus
from orders.tally import CHECKOUTS, End
from payments import crashpoints, dbtime, mode
from payments.batch import Batch
from payments.minor_units import can_charge
from payments.operations import Outlook, PaymentView
from resilience.deadline import Deadline

logger = logging.getLogger(__name__)


class PriceChangedError(Exception):
    """What the shopper saw is no longer what it costs. `priced` is what it costs now."""

    def __init__(self, priced: PricedCart) -> None:
        super().__init__("the price changed")
        self.priced = priced


class NotChargeableError(Exception):
    """The basket comes to an amount that no single payment can have: nothing at all, or too much."""

    def __init__(self, total: Money) -> None:
        super().__init__("the total cannot be charged")
        self.total = total


class EmptyCartError(Exception):
    """There is nothing to order."""


class BasketChangedError(Exception):
    """The basket holds other goods than those the shopper saw."""


@dataclass(frozen=True)
class Checkout:
    """A submitted checkout form. The shown amount is only compared, never used as a price."""

    token: UUID
    owner: str
    shown_minor: int
    currency: str
    email: str
    method: str
    language: str
    user_id: int | None
    address: str = ""
    basket: str = ""  # fingerprint of the goods the shopper saw; empty: the form did not say


def find_existing(token: UUID, owner: str) -> str | None:
    """The token of the order that this form has made already."""
    record = IdempotencyRecord.objects.filter(token=token, owner=owner).first()
    return record.order_token if record else None


def check_out(form: Checkout, cart: CartView, deadline: Deadline) -> str:
    """Makes an order of a basket and takes the money, or accepts it unpaid. Returns the order's token.

    Submitting the same form again returns the same order. Raises EmptyCartError, PriceChangedError,
    BasketChangedError, NotChargeableError, stock.SoldOutError, UnpaidLimitError, CatalogDownError,
    CurrencyUnavailableError; then no order was made and the basket is as it was.
    """
    try:
        token, end = _place_and_pay(form, cart, deadline)
    except tuple(_REFUSALS) as error:
        # Whatever speaks against a new order, the one that this form made earlier stands.
        existing = find_existing(form.token, form.owner)
        CHECKOUTS[End.REPEATED if existing else _REFUSALS[type(error)]].add()
        if existing:
            return existing
        raise
    CHECKOUTS[end].add()
    return token


_ENDS = {
    OrderStatus.PAID: End.PAID,
    OrderStatus.DECLINED: End.DECLINED,
    OrderStatus.ACTION_REQUIRED: End.ACTION_REQUIRED,
    OrderStatus.AWAITING_PAYMENT: End.AWAITING_PAYMENT,
}
_REFUSALS: dict[type[Exception], End] = {
    EmptyCartError: End.EMPTY,
    BasketChangedError: End.BASKET_CHANGED,
    PriceChangedError: End.PRICE_CHANGED,
    NotChargeableError: End.NOT_CHARGEABLE,
    UnpaidLimitError: End.UNPAID_LIMIT,
    stock.SoldOutError: End.SOLD_OUT,
    CatalogDownError: End.CATALOG_DOWN,
    CurrencyUnavailableError: End.CURRENCY_UNAVAILABLE,
}


def _place_and_pay(form: Checkout, cart: CartView, deadline: Deadline) -> tuple[str, End]:
    if cart.lines and form.basket and form.basket != cart.fingerprint:
        raise BasketChangedError
    priced = quote_cart(cart, form.currency, deadline) if cart.lines else None
    if priced is None:
        raise EmptyCartError
    quote = priced.quote
    if quote is None or priced.gone or quote.total.minor != form.shown_minor:
        raise PriceChangedError(priced)
    if not can_charge(quote.total.minor, quote.total.currency):
        raise NotChargeableError(quote.total)
    degraded = mode.current().degraded
    outlook = limits.outlook(degraded=degraded)
    stock.glance(_wanted(quote))
    placed = _place(form, cart, priced, quote, degraded=degraded, outlook=outlook)
    if isinstance(placed, str):
        return placed, End.REPEATED
    crashpoints.reached("place.committed")
    order, lease, payment = placed
    if lease is None:
        return order.token, End.AWAITING_PAYMENT
    status = take_money_at_once(order, lease, payment, deadline)
    return order.token, _ENDS.get(status, End.TAKEN_OVER) if status else End.TAKEN_OVER


def _place(
    form: Checkout,
    cart: CartView,
    priced: PricedCart,
    quote: Quote,
    *,
    degraded: bool,
    outlook: Outlook,
) -> str | tuple[Order, Lease | None, PaymentView]:
    """The one transaction. Returns the earlier order's token if the form was submitted before."""
    with transaction.atomic():
        if (begun := _begin(form, cart)) is None:
            return find_existing(form.token, form.owner) or _foreign()
        now = begun.now
        order = _order(form, priced, quote, begun, degraded=degraded)
        lease_for = None if degraded else timedelta(seconds=settings.HOLDFAST.inline_lease_seconds)
        with Batch() as batch:
            batch.insert(order)
            batch.insert(*_lines(order, quote, priced))
            payment = create_payment(order, form.method, started=not degraded, made_at=now, batch=batch)
            lease = promise_charge(order, payment, now, lease_for, batch=batch)
            tell(order, "placed", actor=SHOPPER, now=now, after=order.status, batch=batch)
            if degraded:
                why = {"reason": "degraded"}
                move(order, OrderAction.DEFER, actor=SHOPPER, now=now, detail=why, batch=batch)
                notify.promise(order, notify.ACCEPTED, now, batch=batch)
        # Last, so that the locks which all buyers of a product share are held for the commit alone.
        limits.hold(order, outlook)
        stock.reserve(order, _wanted(quote))
    logger.info("order placed", extra={"order": order.number, "degraded": degraded})
    return order, (None if degraded else lease), payment


@dataclass(frozen=True)
class _Begun:
    """What a new order starts with: the database's time and the order's keys."""

    now: datetime
    order_id: int
    order_token: str


_BEGIN = """
    WITH first AS (
        INSERT INTO orders_idempotencyrecord (token, owner, order_token, created_at)
        VALUES (%s, %s, %s, now()) ON CONFLICT (token) DO NOTHING RETURNING 1),
    taken AS (DELETE FROM orders_cartline WHERE cart_id = %s AND EXISTS (SELECT FROM first) RETURNING sku, quantity)
    SELECT {now}, nextval(pg_get_serial_sequence('orders_order', 'id')),
           (SELECT jsonb_agg(jsonb_build_array(sku, quantity)) FROM taken)
      FROM first
"""


def _begin(form: Checkout, cart: CartView) -> _Begun | None:
    """Takes the form's token, and the goods out of the basket if they are still those of the order: another
    tab may have been faster. None for a second submit, which waits here for the first one's commit.

    Raises EmptyCartError, BasketChangedError.
    """
    order_token = new_token()
    with connection.cursor() as cursor:
        cursor.execute(_BEGIN.format(now=dbtime.sql()), [form.token, form.owner, order_token, cart.id])
        row = cursor.fetchone()
    if row is None:
        return None
    now, order_id, taken = row
    if not taken:
        raise EmptyCartError
    if sorted(json.loads(taken)) != sorted([line.sku, line.quantity] for line in cart.lines):
        raise BasketChangedError
    return _Begun(now, order_id, order_token)


def _foreign() -> str:
    raise EmptyCartError  # the token belongs to somebody else's form


def _order(form: Checkout, priced: PricedCart, quote: Quote, begun: _Begun, *, degraded: bool) -> Order:
    config = settings.HOLDFAST
    seconds = config.degraded_reserve_seconds if degraded else config.reserve_seconds
    rate = quote.rate
    return Order(
        id=begun.order_id,
        token=begun.order_token,
        status=OrderStatus.PLACED,
        user_id=form.user_id,
        email=form.email,
        address=form.address,
        language=form.language,
        currency=quote.total.currency,
        total_minor=quote.total.minor,
        base_total_minor=priced.base_total,
        rate_value=rate.value if rate else None,
        rate_source=rate.source if rate else "",
        rate_date=rate.provider_date if rate else None,
        rate_fetched_at=rate.fetched_at if rate else None,
        rate_stale=bool(rate and rate.freshness is Freshness.STALE),
        price_as_of=quote.price_as_of,
        reserve_until=begun.now + timedelta(seconds=seconds),
        deferred_because="degraded" if degraded else "",
        created_at=begun.now,
    )


def _lines(order: Order, quote: Quote, priced: PricedCart) -> list[OrderLine]:
    return [
        OrderLine(
            order=order,
            position=position,
            sku=line.sku,
            names=dict(priced.names.get(line.sku, {"en": line.name})),
            quantity=line.quantity,
            unit_minor=line.unit.minor,
            total_minor=line.total.minor,
        )
        for position, line in enumerate(quote.lines)
    ]


def _wanted(quote: Quote) -> Counter[str]:
    wanted: Counter[str] = Counter()
    for line in quote.lines:
        wanted[line.sku] += line.quantity
    return wanted
