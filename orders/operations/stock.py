"""Stock: reserve, consume, release. Rows are always locked in the order of their SKU."""

from __future__ import annotations

from collections.abc import Mapping

from django.db import connection

from orders.models import Order, Reservation, StockItem


class SoldOutError(Exception):
    """Fewer units are free than asked for. `free` maps each short SKU to what is left."""

    def __init__(self, free: Mapping[str, int]) -> None:
        super().__init__("sold out: " + ", ".join(sorted(free)))
        self.free = dict(free)


def _lock(skus: list[str]) -> dict[str, StockItem]:
    rows = StockItem.objects.select_for_update().filter(sku__in=skus).order_by("sku")
    return {row.sku: row for row in rows}


def glance(wanted: Mapping[str, int]) -> None:
    """Raises SoldOutError if the units are gone already. Locks nothing and promises nothing."""
    rows = StockItem.objects.filter(sku__in=wanted).values_list("sku", "on_hand", "reserved")
    free = dict.fromkeys(wanted, 0) | {sku: on_hand - reserved for sku, on_hand, reserved in rows}
    if short := {sku: max(0, free[sku]) for sku in wanted if free[sku] < wanted[sku]}:
        raise SoldOutError(short)


def reserve(order: Order, wanted: Mapping[str, int]) -> None:
    """Holds units for an order. Raises SoldOutError and changes nothing if any product is short."""
    skus = sorted(wanted)
    stock = _lock(skus)
    free = {sku: stock[sku].on_hand - stock[sku].reserved if sku in stock else 0 for sku in skus}
    if short := {sku: max(0, free[sku]) for sku in skus if free[sku] < wanted[sku]}:
        raise SoldOutError(short)
    _apply("reserved = s.reserved + q.n", wanted)
    Reservation.objects.bulk_create([Reservation(order=order, sku=sku, quantity=wanted[sku]) for sku in skus])


def consume(order_id: int) -> bool:
    """Turns the held units into sold ones. False when none were held any more."""
    return _leave(
        order_id,
        Reservation.Status.CONSUMED,
        "reserved = s.reserved - q.n, on_hand = s.on_hand - q.n, sold = s.sold + q.n",
    )


def release(order_id: int) -> bool:
    """Gives the held units back, exactly once. False when none were held any more."""
    return _leave(order_id, Reservation.Status.RELEASED, "reserved = s.reserved - q.n")


def _leave(order_id: int, status: str, change: str) -> bool:
    # The order's row is locked by the caller, so its reservations cannot move under our feet.
    held = dict(
        Reservation.objects.filter(order_id=order_id, status=Reservation.Status.HELD).values_list(
            "sku", "quantity"
        )
    )
    if not held:
        return False
    _lock(sorted(held))
    Reservation.objects.filter(order_id=order_id, status=Reservation.Status.HELD).update(status=status)
    _apply(change, held)
    return True


def _apply(change: str, quantities: Mapping[str, int]) -> None:
    """One UPDATE for all products; `change` is one of the constant texts of this file."""
    skus = sorted(quantities)
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE orders_stockitem s SET {change}"  # noqa: S608
            " FROM unnest(%s::text[], %s::int[]) AS q(sku, n) WHERE s.sku = q.sku",
            [skus, [quantities[sku] for sku in skus]],
        )
