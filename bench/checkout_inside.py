"""A checkout in this process, one after the other: orders a second beside two floors, statements, where the time goes,
and what a million earlier orders cost.

The gateway and the catalog are processes of their own that answer at once. One thread, one connection, so the figures
are those of one process; only the ratios travel.
"""

from __future__ import annotations

import cProfile
import pstats
import re
import statistics
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.checkout_rows import FLOOR_LINES, FLOOR_MESSAGE, FLOOR_ORDER, FLOOR_PAYMENT, FLOOR_STOCK, OLD_ROWS

SKUS = ("ROPE-12", "LANTERN-BR")
SIZES = (1_000, 100_000, 1_000_000)
ROUNDS, PER_ROUND = 5, 30
_FIELD = re.compile(r'<input type="hidden" name="(token|shown_total|currency)" value="([^"]*)"')


@dataclass(frozen=True)
class Inside:
    """Per second in one thread; milliseconds are medians. `growth`: (orders in the tables, ms of a checkout)."""

    checkout_per_second: float
    checkout_ms: float
    orm_per_second: float
    sql_per_second: float
    statements: int
    parts_ms: dict[str, float]
    whose: list[tuple[str, float]]
    growth: list[tuple[int, float]]


class Buyer:
    """Fills baskets beforehand, so that only the confirmation is measured."""

    def __init__(self) -> None:
        from django.test import Client

        self.client = Client()

    def form(self) -> dict[str, str]:
        for sku in SKUS:
            added = self.client.post("/cart/add/", {"sku": sku, "quantity": 1})
            assert added.status_code == 302, added.content[:300]
        found = dict(_FIELD.findall(self.client.get("/checkout/").content.decode()))
        return {**found, "email": "bench@example.com", "address": "Quay 1", "method": "pm_card_visa"}

    def confirm(self, form: dict[str, str]) -> None:
        answer = self.client.post("/checkout/", form)
        assert answer.status_code == 302, (answer.status_code, answer.content[:300])


def measure(say: Callable[[str], None]) -> Inside:
    """Call with Django set up, the database migrated and seeded, and healthy neighbours."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("UPDATE orders_stockitem SET on_hand = 1000000000")
    _seconds_each(20)
    rounds = [
        (_seconds_each(PER_ROUND), _per_second(_orm_writes()), _per_second(_sql_writes()))
        for _ in range(ROUNDS)
    ]
    taken = [seconds for seconds, _, _ in rounds]
    say(
        f"checkout {1 / statistics.median(taken):.0f} a second, ORM floor {statistics.median(r[1] for r in rounds):.0f}"
    )
    statements, parts = _parts()
    whose = _profile()
    growth, filled = [], 0
    for size in SIZES:
        for statement in OLD_ROWS:
            _fill(statement, filled + 1, size)
        filled = size
        _vacuum()
        _seconds_each(10)
        growth.append((size, 1000 * statistics.median(_seconds_each(PER_ROUND) for _ in range(3))))
        say(f"{size:,} orders in the tables: {growth[-1][1]:.1f} ms a checkout")
    return Inside(
        checkout_per_second=1 / statistics.median(taken),
        checkout_ms=1000 * statistics.median(taken),
        orm_per_second=statistics.median(orm for _, orm, _ in rounds),
        sql_per_second=statistics.median(sql for _, _, sql in rounds),
        statements=statements,
        parts_ms=parts,
        whose=whose,
        growth=growth,
    )


def _seconds_each(count: int) -> float:
    """Median seconds of one confirmed order."""
    taken = []
    for _ in range(count):
        buyer = Buyer()
        form = buyer.form()
        begun = time.perf_counter()
        buyer.confirm(form)
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def _per_second(write: Callable[[], None], seconds: float = 1.0) -> float:
    write()
    count, begun = 0, time.perf_counter()
    while time.perf_counter() < begun + seconds:
        write()
        count += 1
    return count / (time.perf_counter() - begun)


def _orm_writes() -> Callable[[], None]:
    """The least that an order must write, by the ORM and nothing else: order, two lines, stock, payment, message."""
    from django.db import transaction
    from django.db.models import F
    from django.utils import timezone

    from orders.models import Order, OrderLine, OutboxMessage, StockItem
    from payments.models import Payment

    order_fields = {
        "email": "floor@example.com",
        "currency": "EUR",
        "total_minor": 3000,
        "base_total_minor": 3000,
    }
    line_fields = {"names": {}, "quantity": 1, "unit_minor": 1500, "total_minor": 1500}
    payment_fields = {"amount_minor": 3000, "currency": "EUR", "method": "card", "status": "SUCCEEDED"}
    message_fields = {"kind": "charge", "destination": "payment", "status": "DONE"}

    def write() -> None:
        now = timezone.now()
        with transaction.atomic():
            order = Order.objects.create(reserve_until=now, created_at=now, **order_fields)
            OrderLine.objects.bulk_create(
                OrderLine(order=order, position=n, sku=sku, **line_fields) for n, sku in enumerate(SKUS)
            )
            stock = StockItem.objects.filter(sku=SKUS[0], reserved__lt=F("on_hand"))
            stock.update(reserved=F("reserved") + 1)
            Payment.objects.create(order_key=order.number, reference=order.number, **payment_fields)
            OutboxMessage.objects.create(
                order=order,
                dedup=order.number,
                due_at=now,
                available_at=now,
                created_at=now,
                **message_fields,
            )

    return write


def _sql_writes() -> Callable[[], None]:
    """The same rows by prepared statements over one bare connection."""
    import psycopg
    from django.conf import settings

    database: dict[str, Any] = settings.DATABASES["default"]
    bare = psycopg.connect(
        host=database["HOST"],
        port=database["PORT"],
        user=database["USER"],
        dbname=database["NAME"],
        autocommit=True,
        prepare_threshold=1,
    )

    def write() -> None:
        name = uuid.uuid4().hex[:20]
        with bare.transaction():
            (order,) = bare.execute(FLOOR_ORDER, (name, name)).fetchone()  # type: ignore[misc]
            bare.execute(FLOOR_LINES, (order, SKUS[0], order, SKUS[1]))
            bare.execute(FLOOR_STOCK, (SKUS[0],))
            bare.execute(FLOOR_PAYMENT, (name, name))
            bare.execute(FLOOR_MESSAGE, (order, name))

    return write


class _Meter:
    """Adds up what is spent in SQL and in calls of neighbours while it is on."""

    def __init__(self) -> None:
        self.on = False
        self.statements = 0
        self.seconds = {"SQL": 0.0, "calls of neighbours": 0.0}

    def sql(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        self.statements += self.on
        return self._timed("SQL", lambda: execute(sql, params, many, context))

    def around(self, request: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            return self._timed("calls of neighbours", lambda: request(*args, **kwargs))

        return called

    def _timed(self, part: str, call: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        try:
            return call()
        finally:
            if self.on:
                self.seconds[part] += time.perf_counter() - begun


def _parts(rounds: int = 40) -> tuple[int, dict[str, float]]:
    """Statements of one checkout, BEGIN and COMMIT apart, and its milliseconds in SQL, in calls, and in Python."""
    from django.db import connection

    from resilience.http import HttpSession

    meter, request, whole = _Meter(), HttpSession.request, 0.0
    HttpSession.request = meter.around(request)  # type: ignore[method-assign]
    try:
        with connection.execute_wrapper(meter.sql):
            for _ in range(rounds):
                buyer = Buyer()
                form = buyer.form()
                begun, meter.on = time.perf_counter(), True
                buyer.confirm(form)
                meter.on = False
                whole += time.perf_counter() - begun
    finally:
        HttpSession.request = request  # type: ignore[method-assign]
    parts = {part: 1000 * seconds / rounds for part, seconds in meter.seconds.items()}
    parts["Python"] = 1000 * whole / rounds - sum(parts.values())
    return meter.statements // rounds, parts


def _profile(rounds: int = 60) -> list[tuple[str, float]]:
    """Whose code has the time, its own without what it calls, in percent. A profile makes Python look dearer than it
    is, and more so the smaller the functions."""
    profile = cProfile.Profile()
    for _ in range(rounds):
        buyer = Buyer()
        form = buyer.form()
        profile.enable()
        buyer.confirm(form)
        profile.disable()
    stats: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    shares: dict[str, float] = {}
    for (file, _, _), (_, _, own, _, _) in stats.items():
        shares[_whose(file)] = shares.get(_whose(file), 0.0) + own
    whole = sum(shares.values())
    return sorted(((name, 100 * own / whole) for name, own in shares.items()), key=lambda item: -item[1])[:10]


def _whose(file: str) -> str:
    """The package that a file belongs to; Django's database layer apart from the rest of it."""
    if file == "~":
        return "built-in functions"
    inside = file.rpartition("/site-packages/")[2] if "/site-packages/" in file else ""
    if inside:
        package = inside.split("/")[0]
        return "django.db" if inside.startswith("django/db/") else package
    ours = next((name for name in ("orders", "payments", "config", "resilience") if f"/{name}/" in file), "")
    return ours or "standard library"


def _fill(statement: str, begin: int, end: int) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement, [begin, end])


def _vacuum() -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
