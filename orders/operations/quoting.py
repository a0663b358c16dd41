"""What a basket costs now, in one currency, and how fresh that is.

Live answers where they can be had within the deadline; otherwise the last known ones, flagged with
their time; otherwise an honest refusal. Never a default.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q

from orders import clients
from orders.catalog import CatalogUnavailable, Product
from orders.models import CartLine, ProductSnapshot, RateRecord
from orders.pricing import Freshness, Item, Money, Quote, Rate, price
from orders.queries import CartItem, CartView, rate_of_record
from orders.rates import SOURCE, RatesAnswer, RatesUnavailable, judge
from payments import dbtime
from resilience.deadline import Deadline

logger = logging.getLogger(__name__)

MOST_PRODUCTS = 2000
"""So many products of the catalog are read for the shop's list, at most."""


class CatalogDownError(Exception):
    """No price that may be used: the catalog is away and the last known price too old."""

    def __init__(self, retry_after: float | None) -> None:
        super().__init__("the catalog cannot be reached")
        self.retry_after = retry_after


class CurrencyUnavailableError(Exception):
    """No rate that may be charged. `seen_at` is when the last good one came, if ever."""

    def __init__(self, currency: str, seen_at: datetime | None) -> None:
        super().__init__(f"no usable rate for {currency}")
        self.currency = currency
        self.seen_at = seen_at


@dataclass(frozen=True)
class PricedCart:
    """A quote with the products' names; `gone` are products that the catalog no longer has."""

    quote: Quote | None
    names: Mapping[str, Mapping[str, str]]
    gone: tuple[str, ...]
    base_total: int


def quote_cart(cart: CartView, currency: str, deadline: Deadline) -> PricedCart:
    """Prices a basket. Raises CatalogDownError, CurrencyUnavailableError."""
    budgets, now = settings.HOLDFAST.budgets, cart.read_at
    products, gone = _products(cart, now, deadline.child(budgets["catalog"].share_ms / 1000))
    items = [
        Item(
            line.sku,
            products[line.sku].name,
            line.quantity,
            products[line.sku].price,
            products[line.sku].as_of,
        )
        for line in cart.lines
        if line.sku in products
    ]
    rate = None
    if currency != settings.HOLDFAST.base_currency:
        rate = chargeable_rate(currency, now, deadline.child(budgets["rates"].share_ms / 1000))
    return PricedCart(
        quote=price(items, currency, rate) if items else None,
        names={known.sku: known.names for known in products.values()}
        | {line.sku: line.names for line in cart.lines if line.sku in gone},
        gone=gone,
        base_total=sum(item.unit.minor * item.quantity for item in items),
    )


@dataclass(frozen=True)
class _Known:
    sku: str
    name: str
    names: Mapping[str, str]
    price: Money
    as_of: datetime | None
    """None when live, else the time of the snapshot."""


def _products(cart: CartView, now: datetime, deadline: Deadline) -> tuple[dict[str, _Known], tuple[str, ...]]:
    skus = sorted({line.sku for line in cart.lines})
    try:
        answer = clients.catalog().batch(skus, deadline)
    except CatalogUnavailable as error:
        return _from_snapshots(cart, now, error), ()
    refresh_snapshots(cart, answer.products.values(), now)
    if answer.broken:
        # One product of which nothing usable is said: its last known price, like a catalog that is away.
        logger.error("catalog broke its contract", extra={"products": dict(answer.broken)})
    found = {p.sku: _Known(p.sku, p.name, names_of(p), p.price, None) for p in answer.products.values()}
    for line in cart.lines:
        if line.sku in answer.broken:
            found[line.sku] = _snapshot(line, now, None)
    return found, tuple(sorted(answer.missing))


def names_of(product: Product) -> dict[str, str]:
    """Names by language; the catalog's plain name is the English one."""
    return {"en": product.name, **product.names}


def _from_snapshots(cart: CartView, now: datetime, error: CatalogUnavailable) -> dict[str, _Known]:
    """The basket's own prices, if each is young enough to be used."""
    logger.warning("priced from snapshots", extra={"reason": error.reason})
    return {line.sku: _snapshot(line, now, error.retry_after) for line in cart.lines}


def _snapshot(line: CartItem, now: datetime, retry_after: float | None) -> _Known:
    oldest = now - timedelta(seconds=settings.HOLDFAST.catalog_snapshot_seconds)
    if line.price is None or line.priced_at < oldest:
        raise CatalogDownError(retry_after)
    return _Known(line.sku, line.names.get("en", line.sku), line.names, line.price, line.priced_at)


def refresh_snapshots(cart: CartView, products: Iterable[Product], now: datetime) -> None:
    """Notes the live prices in the basket, for the time when the catalog is away."""
    by_sku = {product.sku: product for product in products}
    changed = []
    for line in cart.lines:
        product = by_sku.get(line.sku)
        # A price seen again within the minute is not worth a write.
        if product and (product.price != line.price or now - line.priced_at > timedelta(seconds=60)):
            minor, code = product.price.minor, product.price.currency
            changed.append(
                CartLine(pk=line.id, price_minor=minor, currency=code, priced_at=now, names=names_of(product))
            )
    if changed:
        CartLine.objects.bulk_update(changed, ["price_minor", "currency", "priced_at", "names"])


def chargeable_rate(currency: str, now: datetime, deadline: Deadline) -> Rate:
    """A rate that may be charged: the stored one if fresh, else one call, else the stored one flagged stale.

    Raises CurrencyUnavailableError.
    """
    rate = stored_rate(currency, now)
    if (rate is None or rate.freshness is not Freshness.FRESH) and refresh_rates(deadline):
        rate = stored_rate(currency, dbtime.read())
    if rate is None or not rate.may_charge:
        raise CurrencyUnavailableError(currency, rate.fetched_at if rate else None)
    return rate


def stored_rate(currency: str, now: datetime) -> Rate | None:
    """The last good rate with its freshness as of `now`."""
    record = RateRecord.objects.filter(base=settings.HOLDFAST.base_currency, quote=currency).first()
    return rate_of_record(record, now) if record else None


def refresh_rates(deadline: Deadline) -> bool:
    """One call for all currencies; good ones replace the stored ones, bad ones are logged and dropped.

    False when nothing could be had; the stored rates stay.
    """
    config = settings.HOLDFAST
    quotes = [code for code in config.currencies if code != config.base_currency]
    try:
        answer = clients.rates().fetch(quotes, deadline)
    except RatesUnavailable as error:
        logger.warning("rates unavailable", extra={"reason": error.reason, "rejected": dict(error.rejected)})
        return False
    good, rejected = _judged(answer, dbtime.read())
    for quote, reason in rejected.items():
        logger.error("rate rejected", extra={"currency": quote, "reason": reason})
    RateRecord.objects.bulk_create(
        good,
        update_conflicts=True,
        unique_fields=["base", "quote"],
        update_fields=["value", "source", "provider_date", "fetched_at"],
    )
    return bool(good)


def _judged(answer: RatesAnswer, now: datetime) -> tuple[list[RateRecord], dict[str, str]]:
    """What is to be stored of an answer, and why the rest is not."""
    config = settings.HOLDFAST
    previous = {
        record.quote: rate_of_record(record, now)
        for record in RateRecord.objects.filter(base=config.base_currency, quote__in=answer.good)
    }
    good, rejected = [], dict(answer.rejected)
    for quote, fetched in answer.good.items():
        before = previous.get(quote)
        # A rate too old to be shown is no measure for a jump any more.
        believable = before if before and before.may_show else None
        reason = judge(fetched, believable, now.date(), config.rates_max_jump)
        if reason:
            rejected[quote] = reason
            continue
        good.append(
            RateRecord(
                base=config.base_currency,
                quote=quote,
                value=fetched.value,
                source=SOURCE,
                provider_date=fetched.date,
                fetched_at=now,
            )
        )
    return good, rejected


def refresh_catalog(deadline: Deadline) -> bool:
    """Stores the catalog's list for the shop's pages. False when it could not be read to its end."""
    try:
        store_products(_whole_catalog(deadline))
    except CatalogUnavailable as error:
        logger.warning("catalog unavailable", extra={"reason": error.reason})
        return False
    return True


def _whole_catalog(deadline: Deadline) -> list[Product]:
    """All pages of the catalog, as far as the shop has room for. Raises CatalogUnavailable."""
    found: dict[str, Product] = {}
    offset: int | None = 0
    while offset is not None and offset < MOST_PRODUCTS:
        listing = clients.catalog().listing(deadline, offset)
        found.update((product.sku, product) for product in listing.products)
        offset = listing.next_offset
    if offset is not None:
        logger.error("the catalog is larger than the shop has room for", extra={"room": MOST_PRODUCTS})
    return list(found.values())


def store_products(products: Sequence[Product]) -> None:
    """Replaces the stored list by a good one. An empty list is a failure and changes nothing."""
    if not products:
        return
    now = dbtime.read()
    rows = [
        ProductSnapshot(
            sku=product.sku,
            names=names_of(product),
            descriptions={"en": product.description, **product.descriptions},
            price_minor=product.price.minor,
            currency=product.price.currency,
            image_svg=product.image_svg,
            position=position,
            fetched_at=now,
        )
        for position, product in enumerate(products)
    ]
    ProductSnapshot.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["sku"],
        update_fields=[
            "names",
            "descriptions",
            "price_minor",
            "currency",
            "image_svg",
            "position",
            "fetched_at",
        ],
    )
    ProductSnapshot.objects.filter(~Q(sku__in=[row.sku for row in rows])).delete()
