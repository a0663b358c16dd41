"""Baskets: add, change, take along at log-in."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.db import transaction

from orders.models import Cart, CartLine
from orders.queries import CartView, cart_view, products

MAX_QUANTITY = 999
MAX_LINES = 50


class CartError(Exception):
    """The wished change is not possible; the basket is as it was. `code` and `limit` tell why."""

    def __init__(self, code: str, limit: int = 0) -> None:
        super().__init__(code)
        self.code = code
        self.limit = limit


@dataclass(frozen=True)
class Owner:
    """Whose basket: a user's, or that of a guest's cookie."""

    token: str | None
    user_id: int | None


def _cart(owner: Owner, *, create: bool = False) -> Cart | None:
    """The basket, locked. Call inside a transaction."""
    carts = Cart.objects.select_for_update()
    if owner.user_id is not None:
        found = carts.filter(user_id=owner.user_id).first()
        if found is None and create:
            Cart.objects.bulk_create([Cart(user_id=owner.user_id)], ignore_conflicts=True)
            found = carts.filter(user_id=owner.user_id).first()
        return found
    found = carts.filter(token=owner.token, user__isnull=True).first() if owner.token else None
    return found or (Cart.objects.create() if create else None)


def _reload(cart: Cart) -> CartView:
    view = cart_view(Cart.objects.filter(pk=cart.pk))
    assert view is not None
    return view


def add(owner: Owner, sku: str, quantity: int) -> CartView:
    """Adds units of a product. Raises CartError; makes the basket if there is none."""
    _check(quantity)
    product = products().filter(sku=sku).first()
    if product is None:
        raise CartError("unknown_product")
    with transaction.atomic():
        cart = _cart(owner, create=True)
        assert cart is not None
        line = cart.lines.filter(sku=sku).first()
        if line is None:
            if cart.lines.count() >= MAX_LINES:
                raise CartError("too_many_lines", MAX_LINES)
            cart.lines.create(
                sku=sku,
                quantity=quantity,
                names=product.names,
                price_minor=product.price_minor,
                currency=product.currency,
                priced_at=product.fetched_at,
            )
        else:
            _check(line.quantity + quantity)
            line.quantity += quantity
            line.save(update_fields=["quantity"])
        cart.save(update_fields=["updated_at"])
        return _reload(cart)


def set_quantity(owner: Owner, sku: str, quantity: int) -> None:
    """Changes a line. Raises CartError."""
    _check(quantity)
    with transaction.atomic():
        cart = _cart(owner)
        if cart is None or not cart.lines.filter(sku=sku).update(quantity=quantity):
            raise CartError("unknown_product")


def remove(owner: Owner, sku: str) -> None:
    """Takes a line out; no matter if it was not there."""
    CartLine.objects.filter(cart__in=_own(owner), sku=sku).delete()


def _own(owner: Owner) -> list[int]:
    with transaction.atomic():
        cart = _cart(owner)
    return [cart.pk] if cart else []


def choose_currency(owner: Owner, code: str) -> CartView:
    """The currency in which the shop shows prices. Raises CartError."""
    if code not in settings.HOLDFAST.currencies:
        raise CartError("unknown_currency")
    with transaction.atomic():
        cart = _cart(owner, create=True)
        assert cart is not None
        cart.currency = code
        cart.save(update_fields=["currency", "updated_at"])
        return _reload(cart)


def take_along(token: str | None, user_id: int) -> bool:
    """At log-in the guest's basket goes over into the user's; quantities of one product add up.

    False when there was not room for all of it.
    """
    if not token:
        return True
    all_fit = True
    with transaction.atomic():
        guest = Cart.objects.select_for_update().filter(token=token, user__isnull=True).first()
        if guest is None:
            return True
        mine = _cart(Owner(None, user_id), create=True)
        assert mine is not None
        for line in guest.lines.all():
            present = mine.lines.filter(sku=line.sku).first()
            if present is None:
                if mine.lines.count() >= MAX_LINES:
                    all_fit = False
                    continue
                line.cart = mine
                line.save(update_fields=["cart"])
            else:
                together = present.quantity + line.quantity
                all_fit = all_fit and together <= MAX_QUANTITY
                present.quantity = min(MAX_QUANTITY, together)
                present.save(update_fields=["quantity"])
        guest.delete()
    return all_fit


def _check(quantity: int) -> None:
    if not 1 <= quantity <= MAX_QUANTITY:
        raise CartError("quantity", MAX_QUANTITY)
