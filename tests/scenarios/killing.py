"""A Celery app whose children die, by kill -9, of one order: `celery -A tests.scenarios.killing`.

The order is named in the file KILLED_BY; without the file nothing dies.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from celery.signals import worker_process_init

from config.celery import app

__all__ = ["app"]


@worker_process_init.connect
def _arm(**kwargs: Any) -> None:
    from orders import outbox

    healthy = outbox._handlers[outbox.CHARGE]

    def deliver(lease: outbox.Lease) -> None:
        name = Path(os.environ["KILLED_BY"])
        if name.exists() and name.read_text() == str(lease.order_id):
            os.kill(os.getpid(), signal.SIGKILL)
        healthy(lease)

    outbox.register(outbox.CHARGE, deliver)
