"""What payments keeps. Used by this package alone; others go through operations and queries."""

from __future__ import annotations

import uuid
from enum import StrEnum

from django.db import models
from django.db.models import Q

from payments.states import OPEN, EffectiveMode, ModeSetting, PaymentStatus


def _choices(values: type[StrEnum]) -> list[tuple[str, str]]:
    return [(value.value, value.value) for value in values]


class Payment(models.Model):
    """One intention to take money under one idempotency key."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    # The order's number. Opaque here: this package knows nothing of orders.
    order_key = models.CharField(max_length=32, db_index=True)
    # 1 for an order's first payment. Says which is the newest, whatever any clock did.
    number = models.PositiveSmallIntegerField(default=1, db_default=1)
    reference = models.CharField(max_length=40, unique=True)
    amount_minor = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    method = models.CharField(max_length=100)
    # Part of what the idempotency key stands for, so it is frozen with the rest.
    return_url = models.CharField(max_length=500, blank=True, default="")
    status = models.CharField(max_length=16, choices=_choices(PaymentStatus), default=PaymentStatus.NEW)
    intent = models.CharField(max_length=255, null=True, blank=True)
    refund = models.CharField(max_length=255, null=True, blank=True)
    action_url = models.URLField(max_length=2000, null=True, blank=True)
    reason = models.CharField(max_length=64, blank=True, default="")
    lookups = models.PositiveIntegerField(default=0)
    # When the idempotency key may first have reached the gateway, which forgets keys after a day.
    key_used_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(amount_minor__gt=0), name="payment_amount_positive"),
            models.CheckConstraint(
                condition=Q(status__in=[s.value for s in PaymentStatus]), name="payment_status_known"
            ),
            models.UniqueConstraint(
                fields=["order_key"],
                condition=Q(status__in=sorted(s.value for s in OPEN)),
                name="one_open_payment_per_order",
            ),
            models.UniqueConstraint(fields=["intent"], name="payment_intent_once"),
            models.UniqueConstraint(fields=["order_key", "number"], name="payment_number_once_per_order"),
        ]

    def __str__(self) -> str:
        return f"{self.reference} {self.status}"

    @property
    def idempotency_key(self) -> str:
        """Stable for the whole life of the payment, inline and replayed."""
        return f"charge-{self.id}"


class ModeState(models.Model):
    """The one row that says how orders are taken now."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    setting = models.CharField(max_length=4, choices=_choices(ModeSetting), default=ModeSetting.AUTO)
    automatic = models.CharField(max_length=10, choices=_choices(EffectiveMode), default=EffectiveMode.NORMAL)
    until = models.DateTimeField(null=True, blank=True)
    since = models.DateTimeField()
    reason = models.CharField(max_length=500, blank=True, default="")
    actor = models.CharField(max_length=150, blank=True, default="")
    version = models.PositiveIntegerField(default=1)
    # The controller's own side; it goes on being written while a person decides.
    automatic_since = models.DateTimeField(null=True)
    automatic_reason = models.CharField(max_length=500, blank=True, default="")
    entered_at = models.DateTimeField(null=True)
    replay_paused = models.BooleanField(default=False)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="mode_is_one_row")]
        permissions = [("operate", "Can switch degraded mode, redrive and cancel")]

    def __str__(self) -> str:
        return f"{self.setting} since {self.since:%F %T}"


class ModeChange(models.Model):
    """Audit record of one change of mode. A trigger refuses UPDATE and DELETE."""

    at = models.DateTimeField()
    actor = models.CharField(max_length=150)
    old_setting = models.CharField(max_length=4)
    new_setting = models.CharField(max_length=4)
    old_effective = models.CharField(max_length=10)
    new_effective = models.CharField(max_length=10)
    until = models.DateTimeField(null=True)
    reason = models.CharField(max_length=500)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.at:%F %T} {self.actor}: {self.old_setting} → {self.new_setting}"


class StaffAction(models.Model):
    """Audit record of anything else that staff did. A trigger refuses UPDATE and DELETE."""

    at = models.DateTimeField()
    actor = models.CharField(max_length=150)
    action = models.CharField(max_length=40)
    subject = models.CharField(max_length=100)
    before = models.CharField(max_length=100, blank=True)
    after = models.CharField(max_length=100, blank=True)
    reason = models.CharField(max_length=500)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.at:%F %T} {self.actor}: {self.action} {self.subject}"


class BreakerReport(models.Model):
    """What one process last said of its payment breaker. Times are the database's."""

    process = models.CharField(max_length=100, primary_key=True)
    kind = models.CharField(max_length=10)
    state = models.CharField(max_length=20)
    since = models.DateTimeField()
    asked_at = models.DateTimeField(null=True)
    failing_since = models.DateTimeField(null=True)
    healthy_since = models.DateTimeField(null=True)
    failure_rate = models.FloatField(null=True)
    slow_rate = models.FloatField(null=True)
    window_calls = models.PositiveIntegerField(default=0)
    succeeded = models.PositiveBigIntegerField(default=0)
    failed = models.PositiveBigIntegerField(default=0)
    not_permitted = models.PositiveBigIntegerField(default=0)
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.process} {self.state}"


class Throttle(models.Model):
    """One row a cluster-wide rate: the place in time that was given out last."""

    name = models.CharField(max_length=40, primary_key=True)
    last_at = models.DateTimeField(null=True)
    ramp_from = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return self.name


class WebhookReceipt(models.Model):
    """One event that the gateway told of: its id, so that it counts once, and what it was about."""

    event = models.CharField(max_length=255, primary_key=True)
    kind = models.CharField(max_length=100)
    intent = models.CharField(max_length=255, blank=True, default="")
    reference = models.CharField(max_length=100, blank=True, default="")
    received_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.kind} {self.event}"


class MoneyCheck(models.Model):
    """Money that the machines cannot settle by themselves: a person has to look."""

    # Empty when the gateway speaks of money for which there is no order.
    order_key = models.CharField(max_length=32, blank=True, default="")
    subject = models.CharField(max_length=255)
    reason = models.CharField(max_length=200)
    opened_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)
    closed_by = models.CharField(max_length=150, blank=True, default="")
    note = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                fields=["subject"], condition=Q(closed_at__isnull=True), name="one_open_check_per_subject"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.subject}: {self.reason}"
