"""The statements of the benchmark of checkouts: the rows an order is, bare, and a shop's many earlier ones."""

from __future__ import annotations

FLOOR_ORDER = """
INSERT INTO orders_order (number, token, status, email, language, currency, total_minor, base_total_minor, rate_source,
    rate_stale, reserve_until, deferred_because, created_at, updated_at)
VALUES (%s, %s, 'PAID', 'floor@example.com', 'en', 'EUR', 3000, 3000, '', false, now(), '', now(), now()) RETURNING id
"""
FLOOR_LINES = """
INSERT INTO orders_orderline (order_id, position, sku, names, quantity, unit_minor, total_minor)
VALUES (%s, 0, %s, '{}', 1, 1500, 1500), (%s, 1, %s, '{}', 1, 1500, 1500)
"""
FLOOR_STOCK = "UPDATE orders_stockitem SET reserved = reserved + 1 WHERE sku = %s AND reserved < on_hand"
FLOOR_PAYMENT = """
INSERT INTO payments_payment (id, order_key, reference, amount_minor, currency, method, return_url, status, reason,
    lookups, created_at, updated_at)
VALUES (gen_random_uuid(), %s, %s, 3000, 'EUR', 'card', '', 'SUCCEEDED', '', 0, now(), now())
"""
FLOOR_MESSAGE = """
INSERT INTO orders_outboxmessage (kind, destination, order_id, payload, dedup, status, due_at, available_at, attempts,
    last_error, created_at)
VALUES ('charge', 'payment', %s, '{}', %s, 'DONE', now(), now(), 0, '', now())
"""

_ORDERS = """
INSERT INTO orders_order (number, token, status, email, language, currency, total_minor, base_total_minor, rate_source,
    rate_stale, reserve_until, deferred_because, created_at, updated_at)
SELECT 'OLD-' || g, 'old-' || g, 'PAID', 'old@example.com', 'en', 'EUR', 2000, 2000, '', false,
    now() - interval '1 day', '', now() - interval '1 day', now()
FROM generate_series(%s::int, %s) g
"""
_LINES = """
INSERT INTO orders_orderline (order_id, position, sku, names, quantity, unit_minor, total_minor)
SELECT o.id, 1, 'OLD', '{}', 1, 2000, 2000
FROM generate_series(%s::int, %s) g JOIN orders_order o ON o.number = 'OLD-' || g
"""
_PAYMENTS = """
INSERT INTO payments_payment (id, order_key, reference, amount_minor, currency, method, return_url, status, reason,
    lookups, created_at, updated_at)
SELECT gen_random_uuid(), 'OLD-' || g, 'OLD-' || g || '-1', 2000, 'EUR', 'card', '', 'SUCCEEDED', '', 0, now(), now()
FROM generate_series(%s::int, %s) g
"""
_MESSAGES = """
INSERT INTO orders_outboxmessage (kind, destination, payload, dedup, status, due_at, available_at, attempts, last_error,
    created_at, finished_at)
SELECT 'charge', 'payment', '{}', 'old:' || g, 'DONE', now(), now(), 1, '', now(), now()
FROM generate_series(%s::int, %s) g
"""
_EVENTS = """
INSERT INTO orders_orderevent (order_id, at, kind, from_status, to_status, actor, detail)
SELECT o.id, now(), 'pay', 'PLACED', 'PAID', 'old', '{}'
FROM generate_series(%s::int, %s) g JOIN orders_order o ON o.number = 'OLD-' || g
"""
OLD_ROWS = (_ORDERS, _LINES, _PAYMENTS, _MESSAGES, _EVENTS)
"""Paid orders, from a number to a number."""
