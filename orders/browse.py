"""Looking around and filling the basket: thin translation between requests and operations."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from orders import queries
from orders.forms import LONGEST_SEARCH, CurrencyForm, QuantityForm, SkuForm
from orders.operations import carts, quoting
from orders.operations.carts import CartError
from orders.pricing import PricedLine
from orders.queries import CartItem, CartView
from orders.shopper import cart_of, currency_of, deadline_of, owner_of, price_of, remember, shown_currency_of


@require_safe
@never_cache
def catalog(request: HttpRequest) -> HttpResponse:
    currency = shown_currency_of(request)
    shelf = queries.shelf(currency)
    if shelf.stale and quoting.refresh_catalog(deadline_of()):
        shelf = queries.shelf(currency)
    wanted = request.GET.get("q", "")[:LONGEST_SEARCH].strip()
    products = shelf.search(wanted, get_language() or "en")
    context = {"shelf": shelf, "products": products, "currency": currency, "q": wanted}
    return render(request, "orders/catalog.html", context)


@dataclass(frozen=True)
class BasketRow:
    """A line of the basket with what is known of it now; `priced` is None while no price can be had."""

    line: CartItem
    priced: PricedLine | None
    picture: str
    gone: bool


@require_safe
@never_cache
def cart_page(request: HttpRequest) -> HttpResponse:
    return _cart(request)


def _cart(
    request: HttpRequest, status: int = 200, error: str = "", typed: tuple[str, str] = ("", "")
) -> HttpResponse:
    """The basket. With an error, the line in question shows again what was typed."""
    cart = cart_of(request)
    currency = currency_of(request)
    priced, problem = None, ""
    if cart and cart.lines:
        priced, problem = price_of(cart, currency.code)
    quote = priced.quote if priced else None
    by_sku = {line.sku: line for line in quote.lines} if quote else {}
    context = {
        "rows": _rows(cart, by_sku, priced.gone if priced else ()),
        "code": currency.code,
        "quote": quote,
        "problem": problem,
        "error": error,
        "sku": typed[0],
        "typed": typed[1],
    }
    return render(request, "orders/cart.html", context, status=status)


def _rows(cart: CartView | None, priced: dict[str, PricedLine], gone: tuple[str, ...]) -> list[BasketRow]:
    if cart is None:
        return []
    pictures = queries.pictures([line.sku for line in cart.lines])
    return [
        BasketRow(line, priced.get(line.sku), pictures.get(line.sku, ""), line.sku in gone)
        for line in cart.lines
    ]


_CART_ERRORS = {
    "quantity": lambda limit: _("Please enter a whole number between 1 and {limit}.").format(limit=limit),
    "too_many_lines": lambda limit: (
        _("A basket holds at most %(limit)d different products.") % {"limit": limit}
    ),
    "unknown_product": lambda limit: _("This product is not in the shop."),
    "unknown_currency": lambda limit: _("This currency is not offered."),
}


def _cart_failure(request: HttpRequest, error: CartError) -> HttpResponse:
    typed = (request.POST.get("sku", "")[:40], request.POST.get("quantity", "")[:60])
    return _cart(request, 422, _CART_ERRORS[error.code](error.limit), typed)


@require_POST
def cart_add(request: HttpRequest) -> HttpResponse:
    form = QuantityForm(request.POST)
    if not form.is_valid():
        return _cart_failure(request, _form_error(form))
    try:
        cart = carts.add(owner_of(request), form.cleaned_data["sku"], form.cleaned_data["quantity"])
    except CartError as error:
        return _cart_failure(request, error)
    response = redirect("cart")
    remember(response, request, cart)
    return response


def _form_error(form: QuantityForm) -> CartError:
    return CartError("unknown_product") if "sku" in form.errors else CartError("quantity", carts.MAX_QUANTITY)


@require_POST
def cart_update(request: HttpRequest) -> HttpResponse:
    form = QuantityForm(request.POST)
    if not form.is_valid():
        return _cart_failure(request, _form_error(form))
    try:
        carts.set_quantity(owner_of(request), form.cleaned_data["sku"], form.cleaned_data["quantity"])
    except CartError as error:
        return _cart_failure(request, error)
    return redirect("cart")


@require_POST
def cart_remove(request: HttpRequest) -> HttpResponse:
    form = SkuForm(request.POST)
    if not form.is_valid():
        return _cart_failure(request, CartError("unknown_product"))
    carts.remove(owner_of(request), form.cleaned_data["sku"])
    return redirect("cart")


@require_POST
def choose_currency(request: HttpRequest) -> HttpResponse:
    form = CurrencyForm(request.POST)
    if not form.is_valid():
        return _cart_failure(request, CartError("unknown_currency"))
    cart = carts.choose_currency(owner_of(request), form.cleaned_data["currency"])
    response = redirect(_back(request))
    remember(response, request, cart)
    return response


def _back(request: HttpRequest) -> str:
    """Only to pages that exist for this; a posted path is not trusted."""
    return request.POST["back"] if request.POST.get("back") in {"catalog", "cart", "checkout"} else "catalog"
