"""A guest's basket comes along at log-in."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.signals import user_logged_in
from django.http import HttpRequest
from django.utils.translation import gettext as _

from orders.operations import carts
from orders.shopper import CART_COOKIE


def _bring_cart(sender: Any, request: HttpRequest | None, user: Any, **kwargs: Any) -> None:
    if request is not None and not carts.take_along(request.COOKIES.get(CART_COOKIE), user.pk):
        messages.warning(
            request,
            _("Your basket is full. Not everything you had put into it fitted in."),
            fail_silently=True,
        )


def connect() -> None:
    user_logged_in.connect(_bring_cart, dispatch_uid="holdfast-cart")
