"""How a Celery worker ends: it takes nothing new, finishes the call in hand, and is gone within the grace time.

What it held is in the database under a lease, so a worker that has to be cut short loses nothing.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

from billiard.process import current_process
from celery.signals import worker_process_init, worker_shutting_down
from celery.worker import state
from django.conf import settings

from resilience.stopping import FAMILY, Stage

_ECHO_SECONDS = 0.1  # as in draining.py
_told_at = 0.0


@worker_shutting_down.connect
def _told_to_end(how: str = "Warm", **_: Any) -> None:
    """Runs inside the signal handler of the worker's main process, at every SIGTERM and SIGQUIT."""
    global _told_at
    now = time.monotonic()
    if how == "Cold":
        _leave()
    elif FAMILY.now is Stage.SERVING:
        _told_at = now
        FAMILY.advance(Stage.STOPPING)
        threading.Thread(target=leave_when_done, name="worker-end", daemon=True).start()
    elif now - _told_at > _ECHO_SECONDS:
        _leave()


def leave_when_done(code: int = 0) -> None:
    """Takes nothing new, waits for the calls in hand and ends the process.

    Celery's own warm end waits for its pool's processes and its broker, which took from 2 s to for ever.
    """
    FAMILY.advance(Stage.STOPPING)
    end = time.monotonic() + settings.HOLDFAST.grace_seconds
    while time.monotonic() < end and (state.active_requests or state.reserved_requests):
        time.sleep(0.05)
    _leave(code)


def _leave(code: int = 0) -> None:
    """At once; the kernel kills the pool's children with their parent."""
    FAMILY.advance(Stage.NOW)
    os._exit(code)


@worker_process_init.connect
def _leave_signals_to_the_parent(**_: Any) -> None:
    """A SIGTERM to the whole process group must not cut a child's call short; the parent ends its children.

    A pool that works in the parent itself (`--pool solo`) says the same signal there, where it must change nothing.
    """
    if current_process().name != "MainProcess":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
