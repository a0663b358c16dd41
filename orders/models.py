"""What orders keeps. Used by this package alone."""

from __future__ import annotations

import secrets

from django.conf import settings
from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import F, Q

from orders.states import HOLDING, UNPAID_ENDS, OrderStatus

# Crockford's base 32: no I, L, O, U, so a number can be read over the telephone.
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def new_token() -> str:
    """192 random bits: the only key to a guest's order."""
    return secrets.token_urlsafe(24)


def base_currency() -> str:
    """The currency of the catalog's prices."""
    code: str = settings.HOLDFAST.base_currency
    return code


def new_number() -> str:
    """A number to read out. Random, so that it tells nothing about how many orders there are."""
    letters = "".join(secrets.choice(_ALPHABET) for _ in range(10))
    return f"HF-{letters[:5]}-{letters[5:]}"


class StockItem(models.Model):
    sku = models.CharField(max_length=40, primary_key=True)
    on_hand = models.PositiveIntegerField()
    reserved = models.PositiveIntegerField(default=0)
    sold = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(reserved__gte=0) & Q(reserved__lte=F("on_hand")), name="stock_never_oversold"
            )
        ]

    def __str__(self) -> str:
        return f"{self.sku}: {self.on_hand - self.reserved} free"


class ProductSnapshot(models.Model):
    """The last good answer of the catalog about one product, for pages while it is away."""

    sku = models.CharField(max_length=40, primary_key=True)
    names = models.JSONField()
    descriptions = models.JSONField()
    price_minor = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    image_svg = models.TextField(blank=True)
    position = models.PositiveIntegerField(default=0)
    fetched_at = models.DateTimeField()

    class Meta:
        ordering = ["position", "sku"]

    def __str__(self) -> str:
        return self.sku


class RateRecord(models.Model):
    """The last good rate of one currency. Durable, so that a restart in an outage loses nothing."""

    base = models.CharField(max_length=3)
    quote = models.CharField(max_length=3)
    value = models.DecimalField(max_digits=24, decimal_places=12)
    source = models.CharField(max_length=100)
    provider_date = models.DateField()
    fetched_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["base", "quote"], name="one_rate_per_pair"),
            models.CheckConstraint(condition=Q(value__gt=0), name="rate_positive"),
        ]

    def __str__(self) -> str:
        return f"{self.base}/{self.quote} {self.value} of {self.provider_date}"


class Cart(models.Model):
    """A basket, kept apart from the session: a log-out or an expired session does not lose it."""

    token = models.CharField(max_length=64, unique=True, default=new_token)
    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="cart"
    )
    currency = models.CharField(max_length=3, default=base_currency)
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"cart {self.pk}"


class CartLine(models.Model):
    """One product in a basket with the price last seen: usable while the catalog is away."""

    cart = models.ForeignKey(Cart, on_delete=models.CASCADE, related_name="lines")
    sku = models.CharField(max_length=40)
    quantity = models.PositiveIntegerField()
    names = models.JSONField()
    price_minor = models.BigIntegerField()
    currency = models.CharField(max_length=3, default="", db_default="")
    priced_at = models.DateTimeField()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["cart", "sku"], name="one_line_per_product"),
            models.CheckConstraint(condition=Q(quantity__gte=1), name="cart_quantity_positive"),
        ]

    def __str__(self) -> str:
        return f"{self.quantity} × {self.sku}"


class Order(models.Model):
    number = models.CharField(max_length=20, unique=True, default=new_number)
    token = models.CharField(max_length=64, unique=True, default=new_token)
    status = models.CharField(
        max_length=16, choices=[(s.value, s.value) for s in OrderStatus], default=OrderStatus.PLACED
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="orders"
    )
    email = models.EmailField()
    # Empty: the goods are collected.
    address = models.TextField(blank=True, default="", db_default="")
    language = models.CharField(max_length=8, default="en")
    currency = models.CharField(max_length=3)
    total_minor = models.BigIntegerField()
    # The same total in the base currency: what the limits on unpaid acceptance count.
    base_total_minor = models.BigIntegerField()
    # The rate as it was: frozen, so that the order shows the same digits for ever after.
    rate_value = models.DecimalField(max_digits=24, decimal_places=12, null=True)
    rate_source = models.CharField(max_length=100, blank=True, default="")
    rate_date = models.DateField(null=True)
    rate_fetched_at = models.DateTimeField(null=True)
    rate_stale = models.BooleanField(default=False)
    price_as_of = models.DateTimeField(null=True)
    reserve_until = models.DateTimeField()
    deferred_because = models.CharField(max_length=40, blank=True, default="")
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=Q(total_minor__gt=0), name="order_total_positive"),
            models.CheckConstraint(
                condition=Q(status__in=[s.value for s in OrderStatus]), name="order_status_known"
            ),
        ]
        indexes = [
            models.Index(
                fields=["reserve_until"],
                condition=Q(status__in=sorted(s.value for s in HOLDING)),
                name="order_reserve_running",
            ),
            models.Index(
                fields=["updated_at"],
                condition=Q(status__in=sorted(s.value for s in UNPAID_ENDS)),
                name="order_ended_unpaid",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.number} {self.status}"


class OrderLine(models.Model):
    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="lines")
    position = models.PositiveIntegerField()
    sku = models.CharField(max_length=40)
    names = models.JSONField()
    quantity = models.PositiveIntegerField()
    unit_minor = models.BigIntegerField()
    total_minor = models.BigIntegerField()

    class Meta:
        ordering = ["position"]
        constraints = [
            models.CheckConstraint(
                condition=Q(total_minor=F("unit_minor") * F("quantity")), name="line_adds_up"
            ),
            models.CheckConstraint(condition=Q(quantity__gte=1), name="line_quantity_positive"),
        ]

    def __str__(self) -> str:
        return f"{self.quantity} × {self.sku}"


class Reservation(models.Model):
    """Units of one product held for one order. It leaves HELD exactly once."""

    class Status(models.TextChoices):
        HELD = "HELD", "held"
        CONSUMED = "CONSUMED", "consumed"
        RELEASED = "RELEASED", "released"

    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="reservations")
    sku = models.CharField(max_length=40)
    quantity = models.PositiveIntegerField()
    status = models.CharField(max_length=8, choices=Status.choices, default=Status.HELD)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["order", "sku"], condition=Q(status="HELD"), name="one_held_reserve_per_product"
            )
        ]

    def __str__(self) -> str:
        return f"{self.quantity} × {self.sku} {self.status}"


class OrderEvent(models.Model):
    """One line of an order's timeline. Written with the step it tells of, never changed."""

    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="events")
    at = models.DateTimeField()
    kind = models.CharField(max_length=40)
    from_status = models.CharField(max_length=16, blank=True, default="")
    to_status = models.CharField(max_length=16, blank=True, default="")
    actor = models.CharField(max_length=150)
    detail = models.JSONField(default=dict)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.kind} {self.from_status} → {self.to_status}"


class IdempotencyRecord(models.Model):
    """A form's token and the order it made: the second submit finds the first one's order."""

    token = models.UUIDField(primary_key=True)
    owner = models.CharField(max_length=64)
    order_token = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return str(self.token)


class OutboxMessage(models.Model):
    """A promise written with the fact that caused it, kept by a worker afterwards.

    `available_at` is when the row may be claimed; a claim moves it to the end of the lease, so one
    column and one partial index serve waiting, retrying and leased rows.
    """

    class Status(models.TextChoices):
        PENDING = "PENDING", "pending"
        DONE = "DONE", "done"
        CANCELLED = "CANCELLED", "cancelled"
        DEAD = "DEAD", "dead letter"

    kind = models.CharField(max_length=20)
    destination = models.CharField(max_length=20)
    order = models.ForeignKey(Order, null=True, on_delete=models.PROTECT, related_name="messages")
    payload = models.JSONField(default=dict)
    dedup = models.CharField(max_length=120, unique=True)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.PENDING)
    # Earliest first: for a charge the end of the reserve, otherwise the time of writing.
    due_at = models.DateTimeField()
    available_at = models.DateTimeField()
    lease_token = models.UUIDField(null=True)
    attempts = models.PositiveIntegerField(default=0)
    # Times the other side gave this message no answer although it answered others; see outbox.retry.
    setbacks = models.PositiveIntegerField(default=0, db_default=0)
    last_error = models.CharField(max_length=200, blank=True, default="")
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["id"]
        indexes = [
            models.Index(
                fields=["destination", "due_at", "id"],
                condition=Q(status="PENDING"),
                name="outbox_pending",
            ),
            models.Index(fields=["id"], condition=Q(status="DEAD"), name="outbox_dead"),
            # Messages end roughly in the order of their rows, so a few pages hold the last minutes.
            BrinIndex(fields=["finished_at"], name="outbox_finished", pages_per_range=16),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.status}"
