"""The shop's pages: thin translation between requests and operations."""

from __future__ import annotations

import logging
import uuid

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from orders import queries
from orders.forms import CheckoutForm, CurrencyForm, MethodForm, QuantityForm, SkuForm
from orders.operations import carts, quoting
from orders.operations.carts import CartError
from orders.operations.pay import PayNow, pay_now
from orders.operations.place import (
    Checkout,
    EmptyCartError,
    PriceChangedError,
    UnpaidLimitError,
    check_out,
    find_existing,
)
from orders.operations.quoting import CatalogDownError, CurrencyUnavailableError, PricedCart
from orders.operations.stock import SoldOutError
from orders.operations.undo import cancel_by_token
from orders.pricing import Money
from orders.queries import CartView
from orders.shopper import cart_of, currency_of, owner_of, remember
from payments.states import IllegalTransitionError
from resilience.deadline import Deadline, current_deadline

logger = logging.getLogger(__name__)

RETRY_AFTER_SECONDS = 30


def deadline_of() -> Deadline:
    """The response budget of this request, begun by the middleware."""
    return current_deadline() or Deadline.after_ms(settings.HOLDFAST.checkout_budget_ms)


@require_GET
@never_cache
def catalog(request: HttpRequest) -> HttpResponse:
    shelf = queries.shelf(currency_of(request))
    if shelf.stale and quoting.refresh_catalog(deadline_of()):
        shelf = queries.shelf(currency_of(request))
    return render(request, "orders/catalog.html", {"shelf": shelf, "currency": currency_of(request)})


@require_GET
@never_cache
def cart_page(request: HttpRequest) -> HttpResponse:
    return _cart(request)


def _cart(
    request: HttpRequest, status: int = 200, error: str = "", typed: tuple[str, str] = ("", "")
) -> HttpResponse:
    """The basket. With an error, the line in question shows again what was typed."""
    cart = cart_of(request)
    priced, problem = None, ""
    if cart and cart.lines:
        priced, problem = _price(cart, currency_of(request).code)
    context = {
        "view": cart,
        "priced": priced,
        "problem": problem,
        "error": error,
        "sku": typed[0],
        "typed": typed[1],
    }
    return render(request, "orders/cart.html", context, status=status)


def _price(cart: CartView, currency: str) -> tuple[PricedCart | None, str]:
    try:
        return quoting.quote_cart(cart, currency, deadline_of()), ""
    except CatalogDownError:
        return None, _(
            "Prices cannot be had at the moment. Your basket is kept; please come back in a minute."
        )
    except CurrencyUnavailableError as error:
        return None, _currency_words(error)


def _currency_words(error: CurrencyUnavailableError) -> str:
    return _("There is no usable exchange rate for %(currency)s at the moment, so we offer EUR only.") % {
        "currency": error.currency
    }


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
    if form.is_valid():
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


@require_http_methods(["GET", "POST"])
@never_cache
def checkout(request: HttpRequest) -> HttpResponse:
    return _submit(request) if request.method == "POST" else _form(request)


def _form(
    request: HttpRequest,
    form: CheckoutForm | None = None,
    *,
    status: int = 200,
    alert: str = "",
    priced: PricedCart | None = None,
    code: str | None = None,
    fresh_token: bool = False,
) -> HttpResponse:
    """The checkout page: what it costs now, and what was typed so far."""
    cart = cart_of(request)
    if not cart or not cart.lines:
        return redirect("cart")
    code = code or currency_of(request).code
    problem = ""
    if priced is None:
        priced, problem = _price(cart, code)
    typed = form.data if form else {}
    context = {
        "form": form,
        "priced": priced,
        "code": code,
        "alert": alert or problem,
        "email": typed.get("email", request.user.email if request.user.is_authenticated else ""),
        "method": typed.get("method", "pm_card_visa"),
        "methods": CheckoutForm.base_fields["method"].choices,  # type: ignore[attr-defined]
        "token": uuid.uuid4() if fresh_token or not typed.get("token") else typed["token"],
        "seen": _seen(form) if alert else None,
    }
    response = render(
        request, "orders/checkout.html", context, status=503 if problem and status == 200 else status
    )
    if response.status_code == 503:
        response["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return response


def _seen(form: CheckoutForm | None) -> Money | None:
    if form is None or "shown_total" not in form.cleaned_data or "currency" not in form.cleaned_data:
        return None
    return Money(form.cleaned_data["shown_total"], form.cleaned_data["currency"])


def _submit(request: HttpRequest) -> HttpResponse:
    form = CheckoutForm(request.POST)
    cart = cart_of(request)
    if not form.is_valid():
        alert = str(next(iter(form.errors.get("shown_total", [])), ""))
        if "currency" in form.errors:
            alert = _("This currency is not offered.")
        return _form(request, form, status=422, alert=alert, fresh_token="token" in form.errors)
    if cart is None:
        return _nothing_to_order(request)
    data = form.cleaned_data
    wish = Checkout(
        token=data["token"],
        owner=cart.owner,
        shown_minor=data["shown_total"],
        currency=data["currency"],
        email=data["email"],
        method=data["method"],
        language=get_language() or "en",
        user_id=request.user.pk if request.user.is_authenticated else None,
    )
    return _try_to_place(request, form, wish, cart)


def _nothing_to_order(request: HttpRequest) -> HttpResponse:
    messages.error(request, _("Your basket is empty, so there was nothing to order."))
    return redirect("cart")


def _try_to_place(request: HttpRequest, form: CheckoutForm, wish: Checkout, cart: CartView) -> HttpResponse:
    try:
        return redirect("order", check_out(wish, cart, deadline_of()))
    except EmptyCartError:
        return _nothing_to_order(request)
    except PriceChangedError as error:
        alert = _("The price changed since you saw it. Please check the new total and confirm again.")
        return _form(request, form, status=409, alert=alert, priced=error.priced, code=wish.currency)
    except SoldOutError as error:
        alert = _("Sold out while you looked: %(what)s. Nothing was ordered or charged.") % {
            "what": ", ".join(_short(error, cart))
        }
        return _form(request, form, status=409, alert=alert, code=wish.currency)
    except CurrencyUnavailableError as error:
        alert = _currency_words(error)
        return _form(request, form, status=409, alert=alert, code=settings.HOLDFAST.base_currency)
    except CatalogDownError as error:
        return unavailable(request, _("Prices cannot be confirmed at the moment."), error.retry_after)
    except UnpaidLimitError:
        text = _("Payments cannot be taken at the moment, and we cannot accept this order without payment.")
        return unavailable(request, text)


def _short(error: SoldOutError, cart: CartView) -> list[str]:
    names = {line.sku: line.names for line in cart.lines}
    language = (get_language() or "en")[:2]
    return [
        f"{names.get(sku, {}).get(language) or names.get(sku, {}).get('en', sku)} ({_('left')}: {free})"
        for sku, free in error.free.items()
    ]


def unavailable(request: HttpRequest, text: str, retry_after: float | None = None) -> HttpResponse:
    """An honest 503: what does not work, that nothing was ordered, when to come back."""
    response = render(request, "orders/unavailable.html", {"text": text}, status=503)
    response["Retry-After"] = str(max(1, int(retry_after or RETRY_AFTER_SECONDS)))
    return response


def _page(token: str) -> queries.OrderPage:
    page = queries.find_order(token) if token.isascii() else None
    if page is None:
        raise Http404("no such order")
    return page


@require_GET
@never_cache
def order(request: HttpRequest, token: str) -> HttpResponse:
    page = _page(token)
    template = "orders/_order_state.html" if request.headers.get("HX-Request") else "orders/order.html"
    context = {"page": page, "methods": MethodForm.base_fields["method"].choices}  # type: ignore[attr-defined]
    return render(request, template, context)


@require_POST
def order_cancel(request: HttpRequest, token: str) -> HttpResponse:
    _page(token)
    try:
        cancel_by_token(token, "shopper")
    except IllegalTransitionError:
        messages.error(request, _("This order can no longer be cancelled."))
    return redirect("order", token)


_PAY_NOW_WORDS = {
    PayNow.BUSY: lambda: _("Your payment is being taken right now. Please wait a moment."),
    PayNow.UNCERTAIN: lambda: _("An earlier payment is still being confirmed. Please do not pay again."),
    PayNow.TOO_LATE: lambda: _("This order can no longer be paid."),
    PayNow.SOLD_OUT: lambda: _("Meanwhile the goods are sold out. Nothing was charged."),
}


@require_POST
def order_pay(request: HttpRequest, token: str) -> HttpResponse:
    page = _page(token)
    form = MethodForm(request.POST)
    if not form.is_valid():
        messages.error(request, _("Please choose one of the ways to pay."))
        return redirect("order", token)
    result = pay_now(page.token, form.cleaned_data["method"], deadline_of())
    if words := _PAY_NOW_WORDS.get(result):
        messages.error(request, words())
    return redirect("order", token)


@login_required
@never_cache
def account_orders(request: HttpRequest) -> HttpResponse:
    assert request.user.pk is not None
    return render(request, "orders/account_orders.html", {"orders": queries.orders_of(request.user.pk)})


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """An old form is shown again with what was typed; a shopper's basket and order are never lost."""
    text = _(
        "This page had been open for too long, so nothing was done yet. Please check it and confirm again."
    )
    if request.path.rstrip("/").endswith("/checkout"):
        form = CheckoutForm(request.POST)
        form.is_valid()
        cart = cart_of(request)
        token = form.cleaned_data.get("token")
        if cart and token and (existing := find_existing(token, cart.owner)):
            return redirect("order", existing)
        if cart and cart.lines:
            return _form(request, form, status=403, alert=text)
    return render(request, "orders/stale_form.html", {"text": text}, status=403)
