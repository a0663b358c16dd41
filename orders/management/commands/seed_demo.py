"""manage.py seed_demo: two users, stock for what the catalog offers, the first rates. Repeatable."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.management.base import BaseCommand, CommandError

from orders.models import ProductSnapshot, StockItem
from orders.operations import quoting
from resilience.deadline import Deadline

DUTY, SHOPPER = "duty", "shopper"
UNITS = 500


class Command(BaseCommand):
    help = "Fills the demo: a person on duty, a shopper, stock and rates. Never outside the demo."

    def handle(self, *args: Any, **options: Any) -> None:
        if settings.PRODUCTION:
            raise CommandError("seed_demo makes users with known passwords: not in production")
        users = get_user_model()._default_manager
        duty, fresh = users.get_or_create(
            username=DUTY, defaults={"email": "duty@example.com", "is_staff": True}
        )
        if fresh:
            duty.set_password(DUTY)
            duty.save()
            duty.user_permissions.set(
                Permission.objects.filter(content_type__app_label__in=["orders", "payments"])
            )
        shopper, fresh = users.get_or_create(username=SHOPPER, defaults={"email": "shopper@example.com"})
        if fresh:
            shopper.set_password(SHOPPER)
            shopper.save()
        deadline = Deadline.after_ms(5000)
        if not quoting.refresh_catalog(deadline) or not quoting.refresh_rates(deadline):
            self.stderr.write("The catalog or the rates did not answer; the shop will ask again by itself.")
        skus = ProductSnapshot.objects.values_list("sku", flat=True)
        StockItem.objects.bulk_create(
            [StockItem(sku=sku, on_hand=UNITS) for sku in skus], ignore_conflicts=True
        )
        self.stdout.write(f"{len(skus)} products in stock; log in as {DUTY}/{DUTY} or {SHOPPER}/{SHOPPER}")
