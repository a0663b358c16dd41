"""Every read, plain values out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django.conf import settings
from django.db import connection
from django.db.models import QuerySet

from orders.models import Cart, Order, ProductSnapshot, RateRecord
from orders.pricing import Money, Rate, unit_price
from orders.rates import RateLimits, freshness
from orders.states import HOLDING, OrderStatus
from orders.wording import MONEY_CAME, Situation, situation
from payments import dbtime
from payments import queries as payments
from payments.states import PaymentStatus


@dataclass(frozen=True)
class CartItem:
    id: int
    sku: str
    quantity: int
    names: Mapping[str, str]
    price_minor: int
    currency: str
    priced_at: datetime

    @property
    def price(self) -> Money | None:
        """None when the price was noted under another base currency, or none was noted with it."""
        return (
            Money(self.price_minor, self.currency)
            if self.currency == settings.HOLDFAST.base_currency
            else None
        )


@dataclass(frozen=True)
class CartView:
    """A basket; `owner` is what ties a submitted form to it, `read_at` when it was like this."""

    id: int
    owner: str
    currency: str
    lines: tuple[CartItem, ...]
    read_at: datetime

    @property
    def units(self) -> int:
        return sum(line.quantity for line in self.lines)

    @property
    def fingerprint(self) -> str:
        """Equal for two baskets if and only if they hold the same goods."""
        goods = sorted((line.sku, line.quantity) for line in self.lines)
        return hashlib.sha256(json.dumps(goods).encode()).hexdigest()[:16]


_CART_FIELDS = ("pk", "token", "currency", "read_at")
_LINE_FIELDS = ("pk", "sku", "quantity", "names", "price_minor", "currency", "priced_at")


def cart_view(carts: QuerySet[Cart]) -> CartView | None:
    """The one basket among `carts`, if any. One query brings its lines and the database's time along."""
    timed = carts.annotate(read_at=dbtime.Now()).order_by("lines__pk")
    rows = list(timed.values_list(*_CART_FIELDS, *(f"lines__{field}" for field in _LINE_FIELDS)))
    if not rows:
        return None
    pk, token, currency, read_at = rows[0][: len(_CART_FIELDS)]
    lines = tuple(CartItem(*row[len(_CART_FIELDS) :]) for row in rows if row[len(_CART_FIELDS)] is not None)
    return CartView(pk, token, currency, lines, read_at)


def find_cart(token: str | None, user_id: int | None) -> CartView | None:
    """The basket of a user, or of a guest's cookie."""
    if user_id is not None:
        return cart_view(Cart.objects.filter(user_id=user_id))
    if not token:
        return None
    return cart_view(Cart.objects.filter(token=token, user__isnull=True))


def rate_of_record(record: RateRecord, now: datetime) -> Rate:
    """A stored rate with what it may be used for as of now."""
    config = settings.HOLDFAST
    state = freshness(
        record.provider_date,
        record.fetched_at,
        now,
        RateLimits(
            fresh_seconds=config.rates_fresh_seconds,
            provider_max_days=config.rates_provider_max_days,
            show_seconds=config.rates_show_limit_seconds,
            charge_seconds=config.rates_charge_limit_seconds,
        ),
    )
    return Rate(
        base=record.base,
        quote=record.quote,
        value=record.value,
        source=record.source,
        provider_date=record.provider_date,
        fetched_at=record.fetched_at,
        freshness=state.freshness,
        may_show=state.may_show,
        may_charge=state.may_charge,
    )


@dataclass(frozen=True)
class CurrencyOffer:
    """A currency of the shop and whether orders can be placed in it now. The base currency needs no rate."""

    code: str
    rate: Rate | None
    offered: bool

    @property
    def shown(self) -> bool:
        """Whether the catalog may show prices in it, if only for orientation."""
        return self.offered or (self.rate is not None and self.rate.may_show)


def currency_offers() -> tuple[CurrencyOffer, ...]:
    """All configured currencies; those without a rate that may be charged are not offered."""
    config = settings.HOLDFAST
    now = dbtime.read()
    rates = {
        record.quote: rate_of_record(record, now)
        for record in RateRecord.objects.filter(base=config.base_currency)
    }
    return tuple(
        CurrencyOffer(code, rate, code == config.base_currency or (rate is not None and rate.may_charge))
        for code in config.currencies
        for rate in [rates.get(code)]
    )


@dataclass(frozen=True)
class ProductCard:
    sku: str
    names: Mapping[str, str]
    descriptions: Mapping[str, str]
    price: Money
    image_svg: str
    free: int

    def said(self, language: str) -> str:
        """All that the shelf says of it in one language, for a search."""
        texts = (self.names, self.descriptions)
        return " ".join(said.get(language[:2]) or said.get("en", "") for said in texts).casefold()


@dataclass(frozen=True)
class Shelf:
    """The catalog's page: products as last told, and since when the catalog has been silent, if it is."""

    products: tuple[ProductCard, ...]
    fetched_at: datetime | None
    stale: bool

    def search(self, text: str, language: str) -> tuple[ProductCard, ...]:
        """Products that hold every word of `text` in their name or description, in their order."""
        wanted = text.casefold().split()
        return tuple(
            product for product in self.products if all(word in product.said(language) for word in wanted)
        )


CATALOG_FRESH = timedelta(seconds=30)


def products() -> QuerySet[ProductSnapshot]:
    """What is on the shelf; products that were stored under another base currency are not."""
    return ProductSnapshot.objects.filter(currency=settings.HOLDFAST.base_currency)


def shelf(offer: CurrencyOffer) -> Shelf:
    """Products with prices in one currency."""
    rows = list(products())
    free = _free_units()
    oldest = min((row.fetched_at for row in rows), default=None)
    cards = tuple(
        ProductCard(
            sku=row.sku,
            names=row.names,
            descriptions=row.descriptions,
            price=_in(offer, Money(row.price_minor, row.currency)),
            image_svg=row.image_svg,
            free=free.get(row.sku, 0),
        )
        for row in rows
    )
    stale = oldest is None or dbtime.read() - oldest > CATALOG_FRESH
    return Shelf(cards, oldest, stale)


def _in(offer: CurrencyOffer, money: Money) -> Money:
    return unit_price(money, offer.code, offer.rate if offer.code != money.currency else None)


def pictures(skus: Sequence[str]) -> dict[str, str]:
    """The pictures of some products, as far as there are any."""
    return dict(ProductSnapshot.objects.filter(sku__in=skus).values_list("sku", "image_svg"))


def _free_units() -> dict[str, int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT sku, on_hand - reserved FROM orders_stockitem")
        return dict(cursor.fetchall())


@dataclass(frozen=True)
class LineView:
    sku: str
    names: Mapping[str, str]
    quantity: int
    unit: Money
    total: Money


@dataclass(frozen=True)
class EventView:
    at: datetime
    kind: str
    actor: str


@dataclass(frozen=True)
class OrderPage:
    """All that an order's page and its mails say, true at the moment of reading."""

    number: str
    token: str
    email: str
    address: str
    status: OrderStatus
    situation: Situation
    lines: tuple[LineView, ...]
    total: Money
    rate_value: str
    rate_source: str
    rate_date: date | None
    rate_fetched_at: datetime | None
    rate_stale: bool
    price_as_of: datetime | None
    reserve_until: datetime
    created_at: datetime
    timeline: tuple[EventView, ...]
    decline_code: str
    action_url: str | None
    method: str

    @property
    def can_cancel(self) -> bool:
        return self.status in HOLDING

    @property
    def can_pay_now(self) -> bool:
        return self.situation in {
            Situation.AWAITING,
            Situation.DECLINED,
            Situation.NOT_TAKEN,
            Situation.ACTION_REQUIRED,
        }

    @property
    def reserved(self) -> bool:
        """Whether goods are held for this order until `reserve_until`."""
        return self.situation in {Situation.AWAITING, Situation.CONFIRMING, Situation.ACTION_REQUIRED}

    @property
    def version(self) -> str:
        """Differs whenever the page has something new to say."""
        return f"{self.situation.value}-{len(self.timeline)}"

    @property
    def settled(self) -> bool:
        """Nothing more will happen by itself."""
        return self.situation in {
            Situation.PAID,
            Situation.DECLINED,
            Situation.NOT_TAKEN,
            Situation.CANCELLED,
            Situation.EXPIRED,
            Situation.REFUNDED,
        }


def find_order(token: str) -> OrderPage | None:
    """The order with this unguessable token."""
    order = Order.objects.filter(token=token).prefetch_related("lines", "events").first()
    return order_page(order) if order else None


def order_page(order: Order) -> OrderPage:
    """The page of one order."""
    payment = payments.newest(order.number)
    events = tuple(EventView(event.at, event.kind, event.actor) for event in order.events.all())
    status = OrderStatus(order.status)
    return OrderPage(
        number=order.number,
        token=order.token,
        email=order.email,
        address=order.address,
        status=status,
        situation=situation(
            status,
            payment.status if payment else PaymentStatus.NEW,
            expired=any(event.kind == "expire" for event in events),
            looked_into=status is not OrderStatus.PAID
            and payment is not None
            and payment.status in MONEY_CAME
            and payments.has_open_check(order.number),
            refused=payment is not None and payment.refused,
        ),
        lines=_lines_of(order),
        total=Money(order.total_minor, order.currency),
        rate_value=f"{order.rate_value.normalize():f}" if order.rate_value is not None else "",
        rate_source=order.rate_source,
        rate_date=order.rate_date,
        rate_fetched_at=order.rate_fetched_at,
        rate_stale=order.rate_stale,
        price_as_of=order.price_as_of,
        reserve_until=order.reserve_until,
        created_at=order.created_at,
        timeline=events,
        decline_code=payment.reason
        if payment and payment.status == PaymentStatus.DECLINED and not payment.refused
        else "",
        action_url=payment.action_url if payment else None,
        method=payment.method if payment else "",
    )


def _lines_of(order: Order) -> tuple[LineView, ...]:
    return tuple(
        LineView(
            line.sku,
            line.names,
            line.quantity,
            Money(line.unit_minor, order.currency),
            Money(line.total_minor, order.currency),
        )
        for line in order.lines.all()
    )


@dataclass(frozen=True)
class OrderRow:
    number: str
    token: str
    status: OrderStatus
    total: Money
    created_at: datetime


def orders_of(user_id: int, limit: int = 50) -> list[OrderRow]:
    """A user's newest orders."""
    rows = Order.objects.filter(user_id=user_id).order_by("-id")[:limit]
    return [
        OrderRow(
            row.number,
            row.token,
            OrderStatus(row.status),
            Money(row.total_minor, row.currency),
            row.created_at,
        )
        for row in rows
    ]


@dataclass(frozen=True)
class OrderOutcome:
    """What became of an order, for people who watch the shop."""

    number: str
    token: str
    situation: Situation
    total: Money
    created_at: datetime


def newest_orders(limit: int) -> list[OrderOutcome]:
    """The shop's newest orders, whoever placed them."""
    outcomes = []
    for order in Order.objects.prefetch_related("lines", "events")[:limit]:
        page = order_page(order)
        outcomes.append(OrderOutcome(page.number, page.token, page.situation, page.total, page.created_at))
    return outcomes


def first_price() -> CartItem | None:
    """The first product of the shelf with its price in the base currency."""
    row = products().first()
    return CartItem(0, row.sku, 1, row.names, row.price_minor, row.currency, row.fetched_at) if row else None
