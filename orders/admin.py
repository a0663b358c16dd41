"""Staff pages of orders: reading, and buttons that call operations. No state is assigned here."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from orders import outbox
from orders.models import Order, OrderEvent, OrderLine, OutboxMessage, RateRecord, StockItem
from orders.operations import undo
from payments.states import IllegalTransitionError


class ReadOnly:
    """History: to be read, not to be edited or deleted."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


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
    actions = ("cancel_orders",)

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("payments.operate")

    @admin.action(description="Cancel unpaid orders", permissions=["operate"])
    def cancel_orders(self, request: HttpRequest, queryset: QuerySet[Order]) -> None:
        for order in queryset:
            try:
                undo.cancel(order.pk, request.user.get_username(), "cancelled by staff")
            except IllegalTransitionError as error:
                messages.error(request, f"{order.number}: {error}")


@admin.register(OutboxMessage)
class OutboxAdmin(ReadOnly, admin.ModelAdmin):
    list_display = ("id", "kind", "status", "attempts", "available_at", "last_error")
    list_filter = ("status", "kind")
    exclude = ("lease_token",)
    actions = ("redrive",)

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("payments.operate")

    @admin.action(description="Redrive dead letters", permissions=["operate"])
    def redrive(self, request: HttpRequest, queryset: QuerySet[OutboxMessage]) -> None:
        count = outbox.redrive(list(queryset.values_list("pk", flat=True)), request.user.get_username())
        messages.success(request, f"{count} redriven")


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
