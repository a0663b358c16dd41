"""`python -m bench.outbox [DIRECTORY]`: what a claim costs as the table grows, and how fast the relay is.

On an embedded PostgreSQL of its own, durable as in production. The floor is the same work by hand-written
SQL over one prepared connection, in the same run; only the ratio travels to other machines.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PENDING = 10_000
BATCH = 100
SIZES = (1_000, 100_000, 1_000_000)
RELAYED = 2_000

_INSERT = """
INSERT INTO orders_outboxmessage (kind, destination, payload, dedup, status, due_at, available_at, attempts,
    setbacks, last_error, created_at, finished_at)
SELECT 'notify', 'mail', '{"notice": "paid"}', %s || g, %s, now() - g * interval '1 ms', now() - interval '1 h', 0,
    0, '', now(), CASE WHEN %s = 'DONE' THEN now() END
FROM generate_series(1, %s) g
"""
_CLAIM_ONE = """
UPDATE orders_outboxmessage SET lease_token = gen_random_uuid(), attempts = attempts + 1,
    available_at = clock_timestamp() + interval '30 s'
WHERE id = (SELECT id FROM orders_outboxmessage WHERE status = 'PENDING' AND destination = 'mail'
    AND available_at <= clock_timestamp() ORDER BY due_at, id FOR UPDATE SKIP LOCKED LIMIT 1)
RETURNING id, lease_token
"""
_DONE = """
UPDATE orders_outboxmessage SET status = 'DONE', finished_at = clock_timestamp(), lease_token = NULL
WHERE id = %s AND lease_token = %s AND status = 'PENDING'
"""


def _prepare(url: str) -> None:
    nowhere = "http://127.0.0.1:9"
    os.environ.update(
        {"HOLDFAST_ENV": "test", "SECRET_KEY": "bench", "DATABASE_URL": url, "PAYMENT_API_KEY": "none"}
        | {"BROKER_URL": "redis://127.0.0.1:9/0", "DJANGO_SETTINGS_MODULE": "config.settings"}
        | {"PAYMENT_URL": nowhere, "CATALOG_URL": nowhere, "RATES_URL": nowhere}
    )
    import logging

    import django
    from django.core.management import call_command

    django.setup()
    logging.disable(logging.CRITICAL)
    call_command("migrate", verbosity=0)


def _fill(cursor: Any, name: str, status: str, count: int) -> None:
    cursor.execute(_INSERT, [name, status, status, count])


def _milliseconds(work: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append((time.perf_counter() - start) * 1000)
    return statistics.median(taken)


def _claims() -> list[dict[str, Any]]:
    """The cost of one claim of a hundred out of ten thousand, beside more and more delivered rows."""
    from django.db import connection, transaction

    from orders import outbox

    def claim() -> None:
        with transaction.atomic():
            assert len(outbox.claim(outbox.MAIL, BATCH)) == BATCH
            transaction.set_rollback(True)

    rows, done = [], 0
    with connection.cursor() as cursor:
        _fill(cursor, "pending-", "PENDING", PENDING)
        for size in SIZES:
            _fill(cursor, f"done-{size}-", "DONE", size - done)
            done = size
            cursor.execute("VACUUM ANALYZE orders_outboxmessage")
            _milliseconds(claim, 10)
            rows.append({"done_rows": size, "claim_ms": round(_milliseconds(claim, 100), 3)})
            cursor.execute("VACUUM orders_outboxmessage")
    for row in rows:
        row["ratio"] = round(row["claim_ms"] / rows[0]["claim_ms"], 2)
    return rows


def _relay(url: str) -> dict[str, float]:
    """Messages delivered a second, one claim and one acknowledgement each, and the same by bare SQL."""
    import psycopg
    from django.db import connection

    from orders import outbox

    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM orders_outboxmessage")
        _fill(cursor, "relay-", "PENDING", 2 * RELAYED)
        cursor.execute("VACUUM ANALYZE orders_outboxmessage")
    with psycopg.connect(url, autocommit=True) as bare:
        start = time.perf_counter()
        for _ in range(RELAYED):
            row = bare.execute(_CLAIM_ONE, prepare=True).fetchone()
            assert row is not None
            bare.execute(_DONE, row, prepare=True)
        floor = RELAYED / (time.perf_counter() - start)
    outbox.register(outbox.NOTIFY, outbox.done)
    start = time.perf_counter()
    for _ in range(RELAYED):
        for lease in outbox.claim(outbox.MAIL, 1):
            outbox.deliver(lease)
    relay = RELAYED / (time.perf_counter() - start)
    return {
        "relay_per_second": round(relay),
        "floor_per_second": round(floor),
        "share": round(relay / floor, 2),
    }


def main() -> None:
    """Prints both tables; with a directory also writes outbox.md and outbox.json there."""
    from sandbox.embedded import start_postgres

    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        server = start_postgres(Path(home))
        try:
            _prepare(server.url)
            claims, relay = _claims(), _relay(server.url)
        finally:
            server.stop()
    lines = [f"| delivered rows | claim of {BATCH} from {PENDING}, median ms | ratio |", "|---|---|---|"]
    lines += [f"| {row['done_rows']:,} | {row['claim_ms']} | {row['ratio']} |" for row in claims]
    lines += [
        "",
        f"Relay {relay['relay_per_second']:,} messages/s; by bare SQL {relay['floor_per_second']:,}/s; "
        f"share {relay['share']}.",
    ]
    print("\n".join(lines))
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        folder.mkdir(parents=True, exist_ok=True)
        head = ["# The outbox: growth and throughput", "Written by `make bench`. Only the ratios travel.", ""]
        (folder / "outbox.md").write_text("\n".join([*head, *lines]) + "\n")
        (folder / "outbox.json").write_text(json.dumps({"claims": claims, "relay": relay}, indent=1) + "\n")


if __name__ == "__main__":
    main()
