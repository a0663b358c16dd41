"""A guest's basket comes along at log-in."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.signals import user_logged_in
from django.http import HttpRequest

from orders.operations import carts
from orders.shopper import CART_COOKIE


def _bring_cart(sender: Any, request: HttpRequest | None, user: Any, **kwargs: Any) -> None:
    if request is not None:
        carts.take_along(request.COOKIES.get(CART_COOKIE), user.pk)


def connect() -> None:
    user_logged_in.connect(_bring_cart, dispatch_uid="holdfast-cart")
