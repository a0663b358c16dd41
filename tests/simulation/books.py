"""The invariants once more, written independently of the product's audit, in one query: for after every step."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

from django.db import connection

from tests.fakes import Taken

_EVERYTHING = """
SELECT json_build_object(
  'orders', (SELECT json_object_agg(id, json_build_object('number', number, 'status', status,
             'total', total_minor)) FROM orders_order),
  'payments', (SELECT json_agg(json_build_object('order', order_key, 'reference', reference, 'status', status,
               'intent', intent) ORDER BY number) FROM payments_payment),
  'messages', (SELECT json_agg(json_build_object('order', order_id, 'kind', kind,
               'intent', payload->>'intent'))
               FROM orders_outboxmessage WHERE status IN ('PENDING', 'DEAD') AND kind <> 'notify'),
  'held', (SELECT json_agg(json_build_object('order', order_id, 'status', status, 'n', quantity))
           FROM orders_reservation),
  'stock', (SELECT json_agg(json_build_object('on_hand', on_hand, 'reserved', reserved, 'sold', sold))
            FROM orders_stockitem),
  'steps', (SELECT json_agg(json_build_array(order_id, from_status, to_status) ORDER BY id)
            FROM orders_orderevent WHERE to_status <> ''),
  'checks', (SELECT json_agg(order_key) FROM payments_moneycheck WHERE closed_at IS NULL)
)::text
"""
_HOLDING = {"PLACED", "AWAITING_PAYMENT", "ACTION_REQUIRED"}
_LOOSE = {"NEW", "PROCESSING", "UNKNOWN", "ACTION_REQUIRED", "SUCCEEDED"}


def wrong_in(charges: list[Taken]) -> list[str]:
    """Every broken invariant, in words."""
    with connection.cursor() as cursor:
        cursor.execute(_EVERYTHING)
        row = cursor.fetchone()
    assert row is not None
    seen = {name: value or [] for name, value in json.loads(row[0]).items()}
    orders = {int(key): value for key, value in dict(seen["orders"] or {}).items()}
    tried: dict[int, set[str]] = defaultdict(set)
    for message in seen["messages"]:
        tried[message["order"]].add(message["kind"])
    return [
        *_money(orders, seen, tried, charges),
        *_stock(orders, seen),
        *_waiting(orders, seen, tried),
        *_timeline(orders, seen),
    ]


def _timeline(orders: dict[int, Any], seen: dict[str, Any]) -> list[str]:
    """Each step begins where the one before it ended; who writes over another's step breaks the chain."""
    at: dict[int, str] = {}
    found = []
    for number, before, after in seen["steps"]:
        if before and before != at.get(number, before):
            found.append(f"order {number} was {at[number]}, then went from {before} to {after}")
        at[number] = after
    return found + [
        f"order {number} is {order['status']}, its timeline ended at {at[number]}"
        for number, order in orders.items()
        if number in at and order["status"] != at[number]
    ]


def _money(
    orders: dict[int, Any], seen: dict[str, Any], tried: dict[int, set[str]], charges: list[Taken]
) -> list[str]:
    found = []
    order_of = {p["reference"]: p["order"] for p in seen["payments"]}
    going_back = {m["intent"] for m in seen["messages"] if m["kind"] == "refund"}
    kept: Counter[str] = Counter()
    staying: Counter[str] = Counter()
    for taken in charges:
        if taken.refunded < taken.amount:
            name = order_of.get(str(taken.reference), "nobody")
            kept[name] += 1
            staying[name] += taken.intent not in going_back
    succeeded = {p["order"] for p in seen["payments"] if p["status"] == "SUCCEEDED"}
    for number, order in orders.items():
        count, looked_after = kept.pop(order["number"], 0), tried[number] or order["number"] in seen["checks"]
        if staying[order["number"]] > 1 and order["number"] not in seen["checks"]:
            found.append(f"I1 {order['number']} is charged {staying[order['number']]} times")
        if count and order["status"] != "PAID" and not looked_after:
            found.append(f"I2 {order['number']} is {order['status']} but money was kept")
        if order["status"] == "PAID" and (not count or order["number"] not in succeeded):
            found.append(f"I2 {order['number']} is paid with {count} charges")
    return found + [f"I2 {count} charges of {name}" for name, count in kept.items()]


def _stock(orders: dict[int, Any], seen: dict[str, Any]) -> list[str]:
    item = seen["stock"][0]
    sums: Counter[str] = Counter()
    found = []
    for row in seen["held"]:
        sums[row["status"]] += row["n"]
        status = orders[row["order"]]["status"]
        if row["status"] == "HELD" and status not in _HOLDING:
            found.append(f"I3 order {row['order']} is {status} and holds goods")
        if row["status"] == "CONSUMED" and status not in {"PAID", "REFUNDED"}:
            found.append(f"I3 order {row['order']} is {status} and took goods")
    if (item["reserved"], item["sold"]) != (sums["HELD"], sums["CONSUMED"]):
        found.append(f"I3 stock says {item}, orders say {dict(sums)}")
    if item["reserved"] > item["on_hand"] or item["on_hand"] < 0:
        found.append(f"I3 oversold: {item}")
    return found


def _waiting(orders: dict[int, Any], seen: dict[str, Any], tried: dict[int, set[str]]) -> list[str]:
    found = []
    wanted = {"PLACED": "charge", "AWAITING_PAYMENT": "charge", "ACTION_REQUIRED": "check"}
    for number, order in orders.items():
        kind = wanted.get(order["status"])
        if kind and kind not in tried[number]:
            found.append(f"I6 {order['number']} is {order['status']} with nobody trying")
    ended = {o["number"]: n for n, o in orders.items() if o["status"] in {"CANCELLED", "DECLINED"}}
    for payment in seen["payments"]:
        number = ended.get(payment["order"])
        if number and payment["status"] in _LOOSE and not tried[number] & {"void", "refund"}:
            found.append(f"I6 {payment['reference']} is {payment['status']}, its order ended, nobody at it")
    return found
