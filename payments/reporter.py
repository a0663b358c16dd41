"""The thread by which a process tells the others about its payment breaker.

Started after the fork, by gunicorn's and Celery's hooks; nothing starts it by itself. It shares no
lock with requests, its statements are bounded, and when the database is away it only falls silent.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time

from django.conf import settings
from django.db import connection

from payments import clients, replicas
from payments.controller import WEB
from payments.replicas import Tracker
from payments.storage import DATABASE_ERRORS, brief

logger = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between two reports."""
_SECONDS = 1.0


class Reporter(threading.Thread):
    """Reports every `INTERVAL` until `stop`. A worker that never called the gateway has nothing to tell."""

    def __init__(self, kind: str) -> None:
        super().__init__(name="breaker-reporter", daemon=True)
        self.kind = kind
        self.process = f"{kind} {socket.gethostname()}:{os.getpid()}"
        self._tracker = Tracker(settings.HOLDFAST.degraded_after_open_seconds)
        self._stopped = threading.Event()
        self._silent = False

    def run(self) -> None:
        while not self._stopped.wait(INTERVAL):
            try:
                self.report_once()
                self._silent = False
            except DATABASE_ERRORS as error:
                if not self._silent:  # one line an outage, not one a second
                    logger.warning("breaker not reported", extra={"error": type(error).__name__})
                self._silent = True
            except Exception:
                logger.exception("breaker not reported")
            finally:
                connection.close()

    def stop(self) -> None:
        self._stopped.set()

    def report_once(self) -> None:
        """One report, in a short transaction of its own."""
        gateway = clients.inline_gateway() if self.kind == WEB else clients.built_background_gateway()
        if gateway is None:
            return
        finding = self._tracker.note(gateway.chain.breaker.snapshot(), time.monotonic())
        with brief(_SECONDS):
            replicas.report(self.process, self.kind, finding)


def start(kind: str) -> Reporter:
    """Begins to report for this process. Call after the fork, once."""
    reporter = Reporter(kind)
    reporter.start()
    return reporter
