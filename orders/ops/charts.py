"""Two pictures of the last hour, computed from rows: what waits, and how checkouts ended.

Geometry only, in whole units of the drawing; the template draws it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.db import connection

from payments import dbtime

MINUTES = 60
WIDTH, HEIGHT = 600, 120
PAID, UNPAID, DECLINED, OTHER = "paid", "unpaid", "declined", "other"
KINDS = (PAID, UNPAID, DECLINED, OTHER)
_OUTCOME = {"pay": PAID, "defer": UNPAID, "decline": DECLINED}


@dataclass(frozen=True)
class Line:
    """A curve over the last hour, oldest minute first."""

    values: tuple[int, ...]

    @property
    def top(self) -> int:
        return max(1, *self.values)

    @property
    def points(self) -> str:
        """For an SVG polyline."""
        step = WIDTH / (len(self.values) - 1)
        return " ".join(
            f"{round(n * step)},{HEIGHT - round(value * HEIGHT / self.top)}"
            for n, value in enumerate(self.values)
        )

    @property
    def area(self) -> str:
        """The same, closed along the ground."""
        return f"0,{HEIGHT} {self.points} {WIDTH},{HEIGHT}"


@dataclass(frozen=True)
class Block:
    """One piece of a column."""

    kind: str
    x: int
    y: int
    height: int


@dataclass(frozen=True)
class Columns:
    """Stacked columns over the last hour, oldest minute first."""

    values: tuple[Mapping[str, int], ...]

    @property
    def top(self) -> int:
        return max(1, *(sum(minute.values()) for minute in self.values))

    @property
    def sums(self) -> dict[str, int]:
        """By outcome, over the whole hour."""
        return {kind: sum(minute.get(kind, 0) for minute in self.values) for kind in KINDS}

    @property
    def blocks(self) -> list[Block]:
        blocks = []
        for n, minute in enumerate(self.values):
            ground = 0
            for kind in KINDS:
                roof = ground + minute.get(kind, 0)
                low, high = (HEIGHT - round(level * HEIGHT / self.top) for level in (ground, roof))
                if low > high:
                    blocks.append(Block(kind, n * WIDTH // MINUTES, high, low - high))
                ground = roof
        return blocks


_MINUTES_AGO = "floor(extract(epoch FROM {now} - {column}) / 60)::int"


def waiting_charges() -> Line:
    """How many charges waited at the end of each minute.

    Counted back from what waits now: less what came since, plus what was finished since. One scan
    of the hour instead of one count for each minute.
    """
    now = dbtime.sql()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM orders_outboxmessage WHERE kind = 'charge' AND status = 'PENDING'"
        )
        (waiting,) = cursor.fetchone() or (0,)
        came = _per_minute(cursor, now, "created_at")
        went = _per_minute(cursor, now, "finished_at")
    values = [waiting]
    for ago in range(MINUTES):
        waiting += went.get(ago, 0) - came.get(ago, 0)
        values.append(max(0, waiting))
    return Line(tuple(reversed(values)))


def _per_minute(cursor: object, now: str, column: str) -> dict[int, int]:
    cursor.execute(  # type: ignore[attr-defined]
        f"SELECT {_MINUTES_AGO.format(now=now, column=column)}, count(*) FROM orders_outboxmessage"  # noqa: S608
        f" WHERE kind = 'charge' AND {column} > {now} - interval '1 hour' GROUP BY 1"
    )
    return dict(cursor.fetchall())  # type: ignore[attr-defined]


def checkout_outcomes() -> Columns:
    """How the checkouts of each minute ended: the first step of each order after it was placed."""
    now = dbtime.sql()
    values: list[dict[str, int]] = [{} for _ in range(MINUTES)]
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {_MINUTES_AGO.format(now=now, column='at')}, kind, count(*) FROM orders_orderevent"  # noqa: S608
            f" WHERE from_status = 'PLACED' AND at > {now} - interval '1 hour' GROUP BY 1, 2"
        )
        for ago, kind, count in cursor.fetchall():
            outcome = _OUTCOME.get(kind, OTHER)
            minute = values[MINUTES - 1 - min(max(ago, 0), MINUTES - 1)]
            minute[outcome] = minute.get(outcome, 0) + count
    return Columns(tuple(values))
