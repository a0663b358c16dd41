"""Celery asks for a lost broker after 2, 4, 6 … 30 seconds; here every 5 s at least, each process by its own times."""

from __future__ import annotations

import logging
import random
from functools import partial
from typing import Any

from celery.beat import Scheduler
from celery.worker.consumer import Consumer

logger = logging.getLogger(__name__)
_LONGEST_SECONDS = 5


def _quick(connection: Any) -> None:
    connection.ensure_connection = partial(
        connection.ensure_connection,
        interval_start=random.uniform(0.2, 1),
        interval_step=random.uniform(0.5, 1.5),
        interval_max=_LONGEST_SECONDS,
    )


class QuickConsumer(Consumer):
    """What a worker listens with."""

    def ensure_connected(self, conn: Any) -> Any:
        _quick(conn)
        return super().ensure_connected(conn)

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Putting a lost connection away can fail in ways that would end the worker: what it takes along are ticks."""
        try:
            super().on_connection_error_after_connected(exc)
        except Exception:
            self.connection = None
            logger.warning("a lost connection could not be put away", exc_info=True)


class QuickScheduler(Scheduler):
    """What beat sends with. Every tick is an interval, so what was sent when need not outlive the process."""

    def _ensure_connected(self) -> Any:
        _quick(self.connection)
        return super()._ensure_connected()  # type: ignore[misc]
