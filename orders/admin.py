"""Staff pages of orders: reading, and buttons that call operations. No state is assigned here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext_lazy as _

from orders.models import Order, OrderEvent, OrderLine, OutboxMessage, RateRecord, StockItem


class ReadOnly:
    """History: to be read, not to be edited or deleted."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def _one_step(
    request: HttpRequest, page: str, subjects: Sequence[str | int], *more: str
) -> HttpResponse | None:
    """To the page that asks for a reason and a confirmation."""
    if len(subjects) == 1:
        return redirect(page, subjects[0], *more)
    messages.error(request, _("Please choose one row to which this can be done: each step needs its reason."))
    return None


class LineInline(ReadOnly, admin.TabularInline):
    model = OrderLine


class EventInline(ReadOnly, admin.TabularInline):
    model = OrderEvent


@admin.register(Order)
class OrderAdmin(ReadOnly, admin.ModelAdmin):
    list_display = ("number", "status", "currency", "total_minor", "reserve_until", "created_at")
    list_filter = ("status", "currency")
    search_fields = ("number", "email")
    exclude = ("token",)
    inlines = (LineInline, EventInline)
    actions = ("cancel_order",)

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("payments.operate")

    @admin.action(description=_("Cancel the unpaid order"), permissions=["operate"])
    def cancel_order(self, request: HttpRequest, queryset: QuerySet[Order]) -> HttpResponse | None:
        numbers = list(queryset.values_list("number", flat=True)[:2])
        return _one_step(request, "ops-cancel", numbers)


@admin.register(OutboxMessage)
class OutboxAdmin(ReadOnly, admin.ModelAdmin):
    list_display = ("id", "kind", "status", "attempts", "available_at", "last_error")
    list_filter = ("status", "kind")
    exclude = ("lease_token",)
    actions = ("redrive",)

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("payments.operate")

    @admin.action(description=_("Redrive the dead letter"), permissions=["operate"])
    def redrive(self, request: HttpRequest, queryset: QuerySet[OutboxMessage]) -> HttpResponse | None:
        ids = list(queryset.filter(status="DEAD").values_list("pk", flat=True)[:2])
        return _one_step(request, "ops-letter", ids, "redrive")


@admin.register(StockItem)
class StockAdmin(admin.ModelAdmin):
    list_display = ("sku", "on_hand", "reserved", "sold")
    search_fields = ("sku",)
    readonly_fields = ("sku", "on_hand", "reserved", "sold")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(RateRecord)
class RateAdmin(ReadOnly, admin.ModelAdmin):
    list_display = ("base", "quote", "value", "provider_date", "fetched_at", "source")
