"""Asking a broken gateway whether it is back, gently.

A place is a PostgreSQL advisory lock of the holder's session: the limit holds over all workers, and
the lock of a holder that dies is given back by the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from django.conf import settings
from django.db import DatabaseError, connection

from payments import mode
from payments.clients import background_gateway
from resilience.deadline import Deadline

_PLACES = 0x50524F42  # names the advisory locks of the probes


@contextmanager
def place() -> Iterator[bool]:
    """Whether the caller may call now: at most one breaker round of calls runs at a time, cluster-wide."""
    taken = _take()
    try:
        yield taken is not None
    finally:
        if taken is not None:
            # With a connection that broke meanwhile the lock is gone already.
            with suppress(DatabaseError), connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [_PLACES, taken])


def _take() -> int | None:
    with connection.cursor() as cursor:
        for number in range(settings.HOLDFAST.payment.breaker_half_open_calls):
            cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [_PLACES, number])
            row = cursor.fetchone()
            if row and row[0]:
                return number
    return None


def probe_if_degraded() -> None:
    """A read-only call, for a worker that found nothing to charge while degraded mode is on."""
    if not mode.current().degraded:
        return
    with place() as free:
        if free:
            background_gateway().ping(Deadline.after_ms(settings.HOLDFAST.worker_budget_ms))
