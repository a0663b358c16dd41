"""The database when it does not answer: how long it is waited for, and what is known of what it was told."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.conf import settings
from django.db import Error, InterfaceError, OperationalError, connection, transaction
from psycopg_pool import PoolTimeout

from resilience.deadline import Deadline, current_deadline, use_deadline

STORAGE_FAILURES = (OperationalError, InterfaceError, PoolTimeout)
"""What the ORM raises when the database, not our code, is at fault (a read-only one apart)."""
DATABASE_ERRORS = (Error, PoolTimeout)
"""Whatever can come out of the database, for those who go on without it."""
_GRACE_SECONDS = 1.0
_SHORT_GRACE_SECONDS = 0.1
_REMEMBERED_SECONDS = 5.0


class _ThisThread(threading.local):
    writes = 0


_this_thread = _ThisThread()


def possible_writes() -> int:
    """How often this thread has had, or may have had, the database keep something."""
    return _this_thread.writes


class PatientConnection(psycopg.Connection[Any]):
    """Waits for an answer as long as a server that is alive could take, not for ever as libpq does.

    Such a server ends a statement by itself (`statement_timeout`, see config.deadlines), so what comes later than
    that comes from one that hangs, or never: the connection is closed. Without a deadline there is no bound.
    """

    _hung_at = float("-inf")

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """psycopg's hook, around every exchange. Raises psycopg.OperationalError."""
        patience = self._patience() if timeout is None else timeout
        end = None if patience is None else time.monotonic() + patience
        try:
            return super().wait(gen, interval, patience)
        except psycopg.OperationalError:
            if end is not None and time.monotonic() >= end:
                self.pgconn.finish()
                PatientConnection._hung_at = time.monotonic()
            if self.closed and self.autocommit:
                _this_thread.writes += 1
            raise

    def commit(self) -> None:
        """Raises psycopg.Error. When the connection was lost over it, nobody knows what became of it."""
        try:
            super().commit()
        except psycopg.Error:
            _this_thread.writes += self.closed
            raise
        _this_thread.writes += 1

    @classmethod
    def _patience(cls) -> float | None:
        deadline = current_deadline()
        if deadline is None:
            return None
        # One that was just seen hanging is not waited for anew by each of the pool's connections.
        hangs = time.monotonic() - cls._hung_at < _REMEMBERED_SECONDS
        grace = _SHORT_GRACE_SECONDS if hangs else _GRACE_SECONDS
        # A statement may take what was left when it was bounded, at most twice what is left now, or the own work's.
        return max(settings.HOLDFAST.own_work_ms / 1000, 2 * deadline.remaining()) + grace


@contextmanager
def brief(seconds: float) -> Iterator[None]:
    """A transaction of a thread in the background: no statement, lock or silent server holds it for long."""
    with use_deadline(Deadline.after_ms(seconds * 1000)), transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT set_config('statement_timeout', %s, true), set_config('lock_timeout', %s, true)",
                [str(round(seconds * 1000))] * 2,
            )
        yield


def is_storage_failure(error: BaseException) -> bool:
    """Whether the database, not our code, is at fault."""
    if isinstance(error, STORAGE_FAILURES):
        return True
    return isinstance(error.__cause__, psycopg.errors.ReadOnlySqlTransaction)
