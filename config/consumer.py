"""Celery's consumer, less patient with a lost broker."""

from __future__ import annotations

import functools
import random
from typing import Any

from celery.worker.consumer import Consumer

_LONGEST_SECONDS = 5


class QuickConsumer(Consumer):
    """Asks for a lost broker at least every 5 s, not every 30 s; workers that lost it together ask apart."""

    def ensure_connected(self, conn: Any) -> Any:
        conn.ensure_connection = functools.partial(
            conn.ensure_connection,
            interval_start=random.uniform(0.2, 1),
            interval_step=random.uniform(0.5, 1.5),
            interval_max=_LONGEST_SECONDS,
        )
        return super().ensure_connected(conn)
