"""The `Retry-After` header, which anybody may fill with anything."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MOST_SECONDS = 86_400
"""Longer than a day is no advice on when to try again."""


def parse_retry_after(value: str | None, date: str | None = None) -> float | None:
    """Seconds from now, between 0 and a day; None when the header is missing, malformed, repeated or absurd.

    A date is compared with the answer's own `Date`, so that neither a wrong clock here nor a step of it
    matters; only without one does this machine's wall clock serve. A date that has passed means 0.
    """
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return float(text) if len(text) <= 5 and int(text) <= MOST_SECONDS else None
    when = _parse_date(text)
    if when is None:
        return None
    reference = _parse_date(date or "") or datetime.fromtimestamp(time.time(), UTC)
    seconds = (when - reference).total_seconds()
    return max(0.0, seconds) if seconds <= MOST_SECONDS else None


_DATE = re.compile(r"[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT", re.ASCII)


def _parse_date(text: str) -> datetime | None:
    """The one form that HTTP allows to be sent today; the standard library would guess at anything."""
    if not _DATE.fullmatch(text):
        return None
    try:
        return parsedate_to_datetime(text)
    except ValueError:
        return None
