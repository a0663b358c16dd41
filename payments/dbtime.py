"""Database time: the one clock on which leases and expiry agree between all processes.

`clock_timestamp()`, not `now()`: the latter stands still within a transaction. Tests shift it with
`shifted(timedelta)` or stop it with `stopped(at)`; in production the SQL is the bare function.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import DateTimeField, Func

_shift = timedelta(0)
_stopped: StoppedTime | None = None


class Now(Func):
    """`clock_timestamp()` as an ORM expression."""

    output_field = DateTimeField()
    function = "clock_timestamp"

    def as_sql(self, *args: Any, **extra: Any) -> tuple[str, tuple[str | int, ...]]:
        return sql(), ()


def sql() -> str:
    """The SQL text of "now"."""
    if _stopped is not None:
        return f"timestamptz '{_stopped.now.isoformat()}'"
    if not _shift:
        return "clock_timestamp()"
    return f"(clock_timestamp() + interval '{_shift.total_seconds()} seconds')"


def read() -> datetime:
    """One round trip for the database's present time."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {sql()}")
        row = cursor.fetchone()
    assert row is not None
    value: datetime = row[0]
    return value


@contextmanager
def shifted(by: timedelta) -> Iterator[None]:
    """For tests and simulations: all database times of this process run ahead by `by`."""
    global _shift
    before, _shift = _shift, _shift + by
    try:
        yield
    finally:
        _shift = before


class StoppedTime:
    """A time that moves only when told to."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def advance(self, seconds: float) -> None:
        """Lets `seconds` pass."""
        self.now += timedelta(seconds=seconds)


@contextmanager
def stopped(at: datetime) -> Iterator[StoppedTime]:
    """For simulations: all database times of this process stand at `at` until advanced."""
    global _stopped
    before, _stopped = _stopped, StoppedTime(at)
    try:
        yield _stopped
    finally:
        _stopped = before
