"""An order's own page, what its owner can do there, and the list of a user's orders."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from orders import queries
from orders.accounts import too_many
from orders.forms import METHODS, MethodForm
from orders.guesses import WRONG_LINKS
from orders.operations.check import look_again
from orders.operations.pay import PayNow, pay_now
from orders.operations.undo import cancel_by_token
from orders.shopper import address_of, deadline_of
from payments.states import IllegalTransitionError


def _counted(view: Callable[[HttpRequest, str], HttpResponse]) -> Callable[[HttpRequest, str], HttpResponse]:
    """Answers 429 to an address that sends too many wrong links. Right ones always open: somebody behind the
    same address may own them."""

    @wraps(view)
    def counted(request: HttpRequest, token: str) -> HttpResponse:
        try:
            return view(request, token)
        except Http404:
            if WRONG_LINKS.count(address_of(request)):
                raise
        return too_many(request, WRONG_LINKS, "links")

    return counted


def _page(token: str) -> queries.OrderPage:
    page = queries.find_order(token) if token.isascii() else None
    if page is None:
        raise Http404("no such order")
    return page


@require_safe
@never_cache
@_counted
def order(request: HttpRequest, token: str) -> HttpResponse:
    """The page, or for the page's own script what changed on it since it was `seen`."""
    page = _page(token)
    live = "HX-Request" in request.headers
    if live and request.GET.get("seen") == page.version:
        return HttpResponse(status=204)
    context = {"page": page, "methods": METHODS, "preferred": _preferred(page)}
    return render(request, "orders/_order_live.html" if live else "orders/order.html", context)


def _preferred(page: queries.OrderPage) -> str:
    """The chosen way to pay; after a decline another one than what was just declined."""
    if not page.decline_code:
        return page.method
    return next(method for method, _words in METHODS if method != page.method)


@require_safe
@never_cache
@_counted
def order_back(request: HttpRequest, token: str) -> HttpResponse:
    """Here the bank sends the shopper back to. What it says in the address is not believed: we ask."""
    _page(token)
    look_again(token)
    return redirect("order", token)


@require_POST
@_counted
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
    PayNow.NOT_CALLED_OFF: lambda: _(
        "The earlier payment could not be called off just now, so no other was begun. Please try again in a moment."
    ),
    PayNow.UNPAID_LIMIT: lambda: _(
        "Payments cannot be taken at the moment, and we cannot accept this order without payment."
    ),
    PayNow.SOLD_OUT: lambda: _("Meanwhile the goods are sold out. Nothing was charged."),
}


@require_POST
@_counted
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
