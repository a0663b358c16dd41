"""The client of the product catalog: names, pictures and prices, each with the time it was true.

Wire format: the catalog's own OpenAPI document. Thread-safe.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from orders.currencies import exponent
from orders.pictures import safe_svg
from orders.pricing import Money
from resilience import errors

if TYPE_CHECKING:
    from resilience.chain import Chain
    from resilience.deadline import Deadline
    from resilience.http import HttpResponse, HttpSession

logger = logging.getLogger(__name__)

T = TypeVar("T")
HIGHEST_PRICE_MINOR: Final = 99_999_999
PAGE_SIZE: Final = 100
_SKU: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}", re.ASCII)  # what the tables have room for
_LANGUAGE: Final = re.compile(r"[a-z]{2}", re.ASCII)
_LONGEST_NAME: Final = 200
_LONGEST_DESCRIPTION: Final = 2000


@dataclass(frozen=True, slots=True)
class Product:
    """A product as the catalog gave it at `as_of`. `names` and `descriptions` hold translations by language.

    `image_svg` is empty where the catalog's picture may not be put into a page.
    """

    sku: str
    name: str
    description: str
    names: Mapping[str, str]
    descriptions: Mapping[str, str]
    price: Money
    image_svg: str
    as_of: datetime


@dataclass(frozen=True, slots=True)
class CatalogAnswer:
    """What a batch call brought. Every SKU asked for is in exactly one of the three.

    `missing`: the catalog does not have it. `broken`: what the catalog says of it cannot be used, and why.
    """

    products: Mapping[str, Product]
    missing: frozenset[str]
    broken: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of the catalog; unusable products are logged and left out. `next_offset`: where to read on,
    None at the end.
    """

    products: tuple[Product, ...]
    next_offset: int | None


class CatalogUnavailable(Exception):
    """The catalog gave no usable answer. `retry_after` in seconds, None if nobody can tell."""

    def __init__(self, reason: str, retry_after: float | None) -> None:
        super().__init__(f"the catalog is unavailable: {reason}")
        self.reason = reason
        self.retry_after = retry_after


class _Broken(ValueError):
    """One product breaks the contract."""


class CatalogClient:
    """Reads products. `http` is anything with `HttpSession.request`; `wall_clock` gives times with a zone.

    Prices in any other currency than `base` break the contract.
    """

    def __init__(
        self, http: HttpSession, chain: Chain, wall_clock: Callable[[], datetime], base: str
    ) -> None:
        exponent(base)
        self._http = http
        self.chain = chain
        self._wall_clock = wall_clock
        self._base = base

    def batch(self, skus: Collection[str], deadline: Deadline) -> CatalogAnswer:
        """Fetch several products in one call. Raises `CatalogUnavailable`."""
        # What cannot be a SKU is missing without asking; it could change the meaning of the query.
        wanted = sorted(sku for sku in set(skus) if _SKU.fullmatch(sku))
        if not wanted:
            return CatalogAnswer({}, frozenset(skus))

        def read(response: HttpResponse) -> CatalogAnswer:
            return self._read_batch(response.body, wanted)

        answer = self._get({"ids": ",".join(wanted)}, read, deadline)
        return CatalogAnswer(answer.products, answer.missing | (set(skus) - set(wanted)), answer.broken)

    def listing(self, deadline: Deadline, offset: int = 0) -> Listing:
        """Fetch a page of up to 100 products. Raises `CatalogUnavailable`."""
        query = {"limit": str(PAGE_SIZE), "offset": str(offset)}

        def read(response: HttpResponse) -> Listing:
            return self._read_listing(response.body, offset)

        return self._get(query, read, deadline)

    def _get(self, query: Mapping[str, str], read: Callable[[HttpResponse], T], deadline: Deadline) -> T:
        def attempt(attempt_deadline: Deadline) -> T:
            return read(self._http.request("GET", "/products", deadline=attempt_deadline, query=query))

        try:
            return self.chain.call(attempt, deadline=deadline, repeatable=True)
        except errors.NotSent as error:
            raise CatalogUnavailable(error.reason, error.retry_after) from None
        except errors.Answered as error:
            raise CatalogUnavailable(f"status_{error.status}", error.retry_after) from None
        except errors.ResilienceError as error:
            bad = isinstance(error, errors.BadAnswer)
            raise CatalogUnavailable("bad_answer" if bad else "no_answer", error.retry_after) from None

    def _read_batch(self, body: Any, wanted: Collection[str]) -> CatalogAnswer:
        rows = _rows(body)
        named = body.get("missing")
        if not isinstance(named, list):
            raise errors.BadAnswer("the answer does not name what is missing", status=200)
        gone = {sku for sku in named if isinstance(sku, str)}
        products: dict[str, Product] = {}
        broken: dict[str, str] = {}
        missing: set[str] = set()
        as_of = self._wall_clock()
        for sku in wanted:
            found = [row for row in rows if isinstance(row, dict) and row.get("sku") == sku]
            if not found and sku in gone:
                missing.add(sku)
                continue
            try:
                products[sku] = self._product(_the_only(found), as_of)
            except _Broken as error:
                broken[sku] = str(error)
        if len(broken) == len(wanted):
            raise errors.BadAnswer("no product in the answer is usable", status=200)
        return CatalogAnswer(products, frozenset(missing), broken)

    def _read_listing(self, body: Any, offset: int) -> Listing:
        rows = _rows(body)[:PAGE_SIZE]
        total = body.get("total")
        if isinstance(total, bool) or not isinstance(total, int) or total < 0:
            raise errors.BadAnswer("the answer does not say how many products there are", status=200)
        as_of = self._wall_clock()
        products: dict[str, Product] = {}
        broken: dict[str, str] = {}
        for row in rows:
            try:
                product = self._product(row, as_of)
            except _Broken as error:
                named = row.get("sku") if isinstance(row, dict) else row
                broken[ascii(named)[:60]] = str(error)
                continue
            products.setdefault(product.sku, product)
        if broken:
            logger.error("catalog broke its contract", extra={"products": broken})
        if rows and not products:
            raise errors.BadAnswer("no product in the answer is usable", status=200)
        end = offset + len(rows)
        return Listing(tuple(products.values()), end if rows and end < total else None)

    def _product(self, row: Any, as_of: datetime) -> Product:
        if not isinstance(row, dict):
            raise _Broken("not an object")
        sku = row.get("sku")
        if not isinstance(sku, str) or not _SKU.fullmatch(sku):
            raise _Broken("sku")
        return Product(
            sku=sku,
            name=_text(row, "name", _LONGEST_NAME),
            description=_text(row, "description", _LONGEST_DESCRIPTION),
            names=_translations(row, "name", _LONGEST_NAME),
            descriptions=_translations(row, "description", _LONGEST_DESCRIPTION),
            price=_price(row.get("price"), self._base),
            image_svg=safe_svg(row.get("image_svg")),
            as_of=as_of,
        )


def _rows(body: Any) -> list[Any]:
    rows = body.get("products") if isinstance(body, dict) else None
    if not isinstance(rows, list):
        raise errors.BadAnswer("the answer is not a list of products", status=200)
    return rows


def _the_only(found: list[Any]) -> Any:
    if len(found) != 1:
        raise _Broken("given twice" if found else "neither found nor missing")
    return found[0]


def _price(price: Any, base: str) -> Money:
    minor = price.get("amount_minor") if isinstance(price, dict) else None
    if isinstance(minor, bool) or not isinstance(minor, int) or not 0 <= minor <= HIGHEST_PRICE_MINOR:
        raise _Broken("price")
    if price.get("currency") != base:
        raise _Broken("currency")
    return Money(minor, base)


def _text(row: Mapping[str, Any], key: str, longest: int) -> str:
    """A text that can be stored and shown: no control characters but line ends, no half characters."""
    value = row.get(key)
    if not isinstance(value, str) or len(value) > longest or (key.startswith("name") and not value.strip()):
        raise _Broken(key)
    if any(unicodedata.category(char) in ("Cc", "Cs") and char != "\n" for char in value):
        raise _Broken(key)
    return value


def _translations(row: Mapping[str, Any], key: str, longest: int) -> dict[str, str]:
    """The texts `key_xx` by language. An unusable one is left out: the one without a language is there."""
    found: dict[str, str] = {}
    for name in row:
        prefix, _, language = name.partition("_")
        if prefix == key and _LANGUAGE.fullmatch(language):
            try:
                found[language] = _text(row, name, longest)
            except _Broken:
                continue
    return found
