"""Who is shopping: the basket's cookie, the chosen currency and the time budget of a request."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from orders import queries
from orders.operations import quoting
from orders.operations.carts import Owner
from orders.operations.quoting import CatalogDownError, CurrencyUnavailableError, PricedCart
from orders.queries import CartView, CurrencyOffer
from resilience.deadline import Deadline, current_deadline

CART_COOKIE = "holdfast_cart"
_WITH_PORT = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::\d+)?|(\d+(?:\.\d+){3}):\d+")
_SIXTY_DAYS = 60 * 24 * 3600


def deadline_of() -> Deadline:
    """The response budget of this request, begun by the middleware."""
    return current_deadline() or Deadline.after_ms(settings.HOLDFAST.checkout_budget_ms)


def address_of(request: HttpRequest) -> str:
    """Where a request comes from, as told by our own proxies; what a client claims beyond them is ignored.

    Of IPv6 it is the network, since who has one address there has 2**64.
    """
    passed = request.headers.get("X-Forwarded-For", "").split(",")
    count = settings.PROXY_COUNT
    if count and len(passed) >= count and (address := passed[-count].strip()):
        named = _WITH_PORT.fullmatch(address)  # as some proxies write it; each connection has another
        return _network(named[1] or named[2] if named else address)
    return _network(str(request.META.get("REMOTE_ADDR", "")))


def _network(address: str) -> str:
    try:
        known = ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(known, IPv4Address):
        return str(known)
    mapped = known.ipv4_mapped
    return str(mapped or IPv6Address(int(known) >> 64 << 64))


def owner_of(request: HttpRequest) -> Owner:
    """A user's basket, or that of the guest's own cookie, which outlives the session."""
    user_id = request.user.pk if request.user.is_authenticated else None
    token = request.COOKIES.get(CART_COOKIE)
    # A cookie is typed by anybody; a NUL byte would be refused by the database.
    return Owner(
        token if token and token.isascii() and token.isprintable() and len(token) <= 64 else None, user_id
    )


def forget_cart(request: HttpRequest) -> None:
    """Lets the next look at the basket be a new one."""
    vars(request).pop("_holdfast_cart", None)


def cart_of(request: HttpRequest) -> CartView | None:
    """The request's basket, read once."""
    if not hasattr(request, "_holdfast_cart"):
        owner = owner_of(request)
        request._holdfast_cart = queries.find_cart(owner.token, owner.user_id)  # type: ignore[attr-defined]
    cart: CartView | None = request._holdfast_cart  # type: ignore[attr-defined]
    return cart


def offers_of(request: HttpRequest) -> tuple[CurrencyOffer, ...]:
    """The shop's currencies as of this request, read once."""
    if not hasattr(request, "_holdfast_offers"):
        request._holdfast_offers = queries.currency_offers()  # type: ignore[attr-defined]
    offers: tuple[CurrencyOffer, ...] = request._holdfast_offers  # type: ignore[attr-defined]
    return offers


def currency_of(request: HttpRequest) -> CurrencyOffer:
    """The currency to order in: the chosen one while it can be offered, else the base."""
    chosen = _chosen_currency(request)
    return chosen if chosen.offered else _base_currency(request)


def shown_currency_of(request: HttpRequest) -> CurrencyOffer:
    """The currency of the catalog's prices: the chosen one while they would not mislead, else the base."""
    chosen = _chosen_currency(request)
    return chosen if chosen.shown else _base_currency(request)


def _chosen_currency(request: HttpRequest) -> CurrencyOffer:
    cart = cart_of(request)
    chosen = [offer for offer in offers_of(request) if cart is not None and offer.code == cart.currency]
    return chosen[0] if chosen else _base_currency(request)


def _base_currency(request: HttpRequest) -> CurrencyOffer:
    return next(offer for offer in offers_of(request) if offer.code == settings.HOLDFAST.base_currency)


def price_of(cart: CartView, currency: str) -> tuple[PricedCart | None, str]:
    """What the basket costs now, or the sentence that says why nobody can tell."""
    try:
        return quoting.quote_cart(cart, currency, deadline_of()), ""
    except CatalogDownError:
        return None, _(
            "Prices cannot be had at the moment. Your basket is kept; please come back in a minute."
        )
    except CurrencyUnavailableError as error:
        return None, currency_words(error)


def currency_words(error: CurrencyUnavailableError) -> str:
    """Why a currency is not offered."""
    return _("There is no usable exchange rate for %(currency)s at the moment. Please order in %(base)s.") % {
        "currency": error.currency,
        "base": settings.HOLDFAST.base_currency,
    }


def remember(response: HttpResponse, request: HttpRequest, cart: CartView) -> None:
    """Gives a guest the basket's cookie."""
    if not request.user.is_authenticated and request.COOKIES.get(CART_COOKIE) != cart.owner:
        response.set_cookie(
            CART_COOKIE,
            cart.owner,
            max_age=_SIXTY_DAYS,
            httponly=True,
            samesite="Lax",
            secure=settings.SESSION_COOKIE_SECURE,
        )
