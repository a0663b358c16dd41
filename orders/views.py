"""The checkout: the form, its answer, and every honest way not to take an order."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from orders.forms import CheckoutForm
from orders.operations.limits import UnpaidLimitError
from orders.operations.place import (
    BasketChangedError,
    Checkout,
    EmptyCartError,
    NotChargeableError,
    PriceChangedError,
    check_out,
    find_existing,
)
from orders.operations.quoting import CatalogDownError, CurrencyUnavailableError, PricedCart
from orders.operations.stock import SoldOutError
from orders.pricing import Money
from orders.queries import CartView
from orders.shopper import cart_of, currency_of, currency_words, deadline_of, forget_cart, price_of

RETRY_AFTER_SECONDS = 30


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
        priced, problem = price_of(cart, code)
    quote = priced.quote if priced else None
    context = {
        "form": form,
        "priced": priced,
        "quote": quote,
        "rows": _rows(cart, priced),
        "chosen": cart.currency,
        "code": code,
        "alert": alert or problem,
        "methods": CheckoutForm.base_fields["method"].choices,  # type: ignore[attr-defined]
        **_typed(request, form, fresh_token=fresh_token),
        "seen": _seen(form) if alert else None,
        "basket": cart.fingerprint,
        "held_until": cart.read_at + timedelta(seconds=settings.HOLDFAST.degraded_reserve_seconds),
    }
    response = render(
        request, "orders/checkout.html", context, status=503 if problem and status == 200 else status
    )
    if response.status_code == 503:
        response["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return response


def _typed(request: HttpRequest, form: CheckoutForm | None, *, fresh_token: bool) -> dict[str, Any]:
    """What stands in the fields: what was typed, or what is known before."""
    typed = form.data if form else {}
    return {
        "email": typed.get("email", request.user.email if request.user.is_authenticated else ""),
        "address": typed.get("address", ""),
        "method": typed.get("method", "pm_card_visa"),
        "token": uuid.uuid4() if fresh_token or not typed.get("token") else typed["token"],
    }


@dataclass(frozen=True)
class SummaryRow:
    """A line of what it costs; `was` is the price seen before, where it can be said exactly."""

    names: Mapping[str, str]
    quantity: int
    unit: Money
    total: Money
    was: Money | None


def _rows(cart: CartView, priced: PricedCart | None) -> list[SummaryRow]:
    if priced is None or priced.quote is None:
        return []
    before = {line.sku: line.price for line in cart.lines}
    rows = []
    for line in priced.quote.lines:
        seen = before.get(line.sku)
        # In another currency the rate may have moved too: then only the totals are compared.
        changed = seen is not None and seen.currency == line.unit.currency and seen != line.unit
        names = priced.names.get(line.sku, {"en": line.name})
        rows.append(SummaryRow(names, line.quantity, line.unit, line.total, seen if changed else None))
    return rows


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
        elif "token" in form.errors:
            alert = _(
                "This form was not complete, so nothing was ordered. Please check it and confirm again."
            )
        return _form(request, form, status=422, alert=alert, fresh_token="token" in form.errors)
    if form.cleaned_data["member"] and not request.user.is_authenticated:
        return _log_in_again(request)
    if cart is None:
        return _nothing_to_order(request)
    data = form.cleaned_data
    wish = Checkout(
        token=data["token"],
        owner=cart.owner,
        shown_minor=data["shown_total"],
        currency=data["currency"],
        email=data["email"],
        address=data["address"],
        basket=data["basket"],
        method=data["method"],
        language=get_language() or "en",
        user_id=request.user.pk if request.user.is_authenticated else None,
    )
    return _try_to_place(request, form, wish, cart)


def _log_in_again(request: HttpRequest) -> HttpResponse:
    messages.error(
        request, _("You are no longer logged in. Your basket is kept: log in, then confirm the order again.")
    )
    return redirect(f"{reverse('login')}?next={reverse('checkout')}")


def _nothing_to_order(request: HttpRequest) -> HttpResponse:
    messages.error(request, _("Your basket is empty, so there was nothing to order."))
    return redirect("cart")


def _try_to_place(request: HttpRequest, form: CheckoutForm, wish: Checkout, cart: CartView) -> HttpResponse:
    try:
        return redirect("order", check_out(wish, cart, deadline_of()))
    except EmptyCartError:
        return _nothing_to_order(request)
    except BasketChangedError:
        alert = _("Your basket has changed since you saw it. Please check it and confirm again.")
        forget_cart(request)
        return _form(request, form, status=409, alert=alert, code=wish.currency)
    except PriceChangedError as error:
        if error.priced.quote is None:
            messages.error(
                request, _("None of this is in the shop any more. Nothing was ordered or charged.")
            )
            return redirect("cart")
        alert = _("The price changed since you saw it. Please check the new total and confirm again.")
        return _form(request, form, status=409, alert=alert, priced=error.priced, code=wish.currency)
    except NotChargeableError as error:
        alert = (
            _("This comes to more than one payment can be. Nothing was ordered; please order less at a time.")
            if error.total.minor > 0
            else _("There is nothing to pay for this basket, and we can only take orders that are paid for.")
        )
        return _form(request, form, status=422, alert=alert, code=wish.currency)
    except SoldOutError as error:
        words = (
            _("Not enough left for your order: %(what)s. Nothing was ordered or charged.")
            if all(error.free.values())
            else _("Sold out while you looked: %(what)s. Nothing was ordered or charged.")
        )
        alert = words % {"what": ", ".join(_short(error, cart))}
        return _form(request, form, status=409, alert=alert, code=wish.currency)
    except CurrencyUnavailableError as error:
        alert = currency_words(error)
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
        _("%(name)s (left: %(free)s)")
        % {"name": names.get(sku, {}).get(language) or names.get(sku, {}).get("en", sku), "free": free}
        for sku, free in error.free.items()
    ]


def unavailable(request: HttpRequest, text: str, retry_after: float | None = None) -> HttpResponse:
    """An honest 503: what does not work, that nothing was ordered, when to come back."""
    response = render(request, "orders/unavailable.html", {"text": text}, status=503)
    response["Retry-After"] = str(max(1, int(retry_after or RETRY_AFTER_SECONDS)))
    return response


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
    return render(request, "orders/stale_form.html", {"text": text, "again": _again(request)}, status=403)


def _again(request: HttpRequest) -> str:
    """The page that an outdated form stood on, as far as it can be told from where it was sent."""
    if request.path.startswith("/orders/"):
        return reverse("order", args=[request.path.split("/")[2]])
    places = (reverse("login"), "/ops/", "/admin/")
    return next((place for place in places if request.path.startswith(place)), reverse("cart"))
