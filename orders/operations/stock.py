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


_RESERVE = """
    WITH wanted AS (SELECT * FROM unnest(%s::text[], %s::int[]) AS u(sku, n)),
    stock AS (
        SELECT s.sku, s.on_hand - s.reserved AS free
          FROM orders_stockitem s JOIN wanted USING (sku) ORDER BY s.sku FOR UPDATE OF s),
    short AS (
        SELECT sku, coalesce(free, 0) AS free FROM wanted LEFT JOIN stock USING (sku) WHERE coalesce(free, 0) < n),
    held AS (
        INSERT INTO orders_reservation (order_id, sku, quantity, status)
        SELECT %s, sku, n, %s FROM wanted WHERE NOT EXISTS (SELECT FROM short)),
    changed AS (
        UPDATE orders_stockitem s SET reserved = s.reserved + n
          FROM wanted w WHERE s.sku = w.sku AND NOT EXISTS (SELECT FROM short))
    SELECT sku, greatest(0, free) FROM short ORDER BY sku
"""
"""Locks the rows, looks whether there is enough of all, and only then takes it: in one round trip."""


def glance(wanted: Mapping[str, int]) -> None:
    """Raises SoldOutError if the units are gone already. Locks nothing and promises nothing."""
    rows = StockItem.objects.filter(sku__in=wanted).values_list("sku", "on_hand", "reserved")
    free = dict.fromkeys(wanted, 0) | {sku: on_hand - reserved for sku, on_hand, reserved in rows}
    if short := {sku: max(0, free[sku]) for sku in wanted if free[sku] < wanted[sku]}:
        raise SoldOutError(short)


def reserve(order: Order, wanted: Mapping[str, int]) -> None:
    """Holds units for an order. Raises SoldOutError and changes nothing if any product is short."""
    with connection.cursor() as cursor:
        cursor.execute(_RESERVE, [list(wanted), list(wanted.values()), order.pk, Reservation.Status.HELD])
        if short := dict(cursor.fetchall()):
            raise SoldOutError(short)


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
    """`change` is one of the constant texts of this file."""
    # The order's row is locked by the caller, so its reservations cannot move under our feet.
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH stock AS (SELECT s.sku FROM orders_stockitem s JOIN orders_reservation r USING (sku)"  # noqa: S608
            " WHERE r.order_id = %s AND r.status = %s ORDER BY s.sku FOR UPDATE OF s),"
            " q AS (UPDATE orders_reservation SET status = %s WHERE order_id = %s AND status = %s"
            " AND (SELECT count(*) FROM stock) >= 0 RETURNING sku, quantity AS n),"
            f" changed AS (UPDATE orders_stockitem s SET {change} FROM q WHERE s.sku = q.sku)"
            " SELECT count(*) FROM q",
            [order_id, Reservation.Status.HELD, status, order_id, Reservation.Status.HELD],
        )
        row = cursor.fetchone()
    return bool(row and row[0])
