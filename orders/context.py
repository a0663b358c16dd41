"""What every page needs: the basket's size, the currencies, whether orders are taken unpaid just now."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from orders.shopper import cart_of, offers_of
from payments import mode


def shop(request: HttpRequest) -> dict[str, Any]:
    """Lazy, so that a page which shows none of it asks for none of it."""
    return {
        "demo": settings.ENVIRONMENT == "demo",
        "cart": SimpleLazyObject(lambda: cart_of(request)),
        "mode": SimpleLazyObject(mode.current),
        "currencies": SimpleLazyObject(lambda: offers_of(request)),
    }
