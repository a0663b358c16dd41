"""A cluster-wide pace in PostgreSQL: one row, whatever the number of workers and beats.

Reserve, then sleep (GCRA with a burst of one): the row holds the place given out last; a caller
takes the next one and sleeps until it comes, outside the transaction. Nobody polls, and shares come
out even. Asking and being denied was rejected: it loses a third of a high rate.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from payments import dbtime
from payments.models import Throttle

REPLAY = "replay"
"""The pace at which workers make the charges that had to wait."""
PROBING_RATE = 1.0
"""Charges per second, at most, while degraded mode is on: they find out whether the gateway is back."""
IDLE_SECONDS = 5.0
"""After so long without a call the pace starts from one per second again."""


def pace(rate: float, ramp_seconds: float, since_start: float) -> float:
    """Calls per second so long after the start: from 1 (or `rate`, if slower) up to `rate`."""
    if rate <= 1 or ramp_seconds <= 0 or since_start >= ramp_seconds:
        return rate
    return 1 + (rate - 1) * max(0.0, since_start) / ramp_seconds


def reserve(name: str, rate: float, ramp_seconds: float, longest_wait: float) -> float | None:
    """Takes the next place and returns how many seconds to wait for it.

    None when that would be longer than `longest_wait`; then no place is taken. Safe from any number
    of processes.
    """
    with transaction.atomic():
        now = dbtime.read()
        Throttle.objects.bulk_create([Throttle(name=name)], ignore_conflicts=True)
        row = Throttle.objects.select_for_update().get(name=name)
        now = max(now, dbtime.read())  # the lock may have been waited for
        if row.last_at is not None and (row.last_at - now).total_seconds() > longest_wait + IDLE_SECONDS:
            row.last_at = None  # no such place is ever given out: the clock has been set back
        place = _next_place(row, now, rate, ramp_seconds)
        wait = (place - now).total_seconds()
        if wait > longest_wait:
            return None
        row.last_at = place
        row.save()
    return wait


def _next_place(row: Throttle, now: datetime, rate: float, ramp_seconds: float) -> datetime:
    if row.last_at is None or row.ramp_from is None or row.last_at < now - timedelta(seconds=IDLE_SECONDS):
        # A ramp that begins anew still follows the places that are given out already.
        row.ramp_from = max(now, row.last_at + timedelta(seconds=1 / rate)) if row.last_at else now
        return row.ramp_from
    # The speed is that of the moment of the last place, not of now: many who wait reserve far ahead.
    speed = pace(rate, ramp_seconds, (row.last_at - row.ramp_from).total_seconds())
    return max(now, row.last_at + timedelta(seconds=1 / speed))


def restart(name: str) -> None:
    """The next call begins a new ramp: an outage came between."""
    Throttle.objects.filter(name=name).update(ramp_from=None)
