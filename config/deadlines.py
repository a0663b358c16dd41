"""The deadline of a piece of work, carried into the database and through Celery's headers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from celery.contrib.django.task import DjangoTask
from django.conf import settings
from django.db import connection
from psycopg.pq import TransactionStatus

from resilience.deadline import HEADER, Deadline, current_deadline, use_deadline
from resilience.errors import OutOfTime

_SENT_AT = "x-holdfast-sent-at"


class StatementTimeout:
    """An execute wrapper: no statement of this work runs longer than the work has time, as PostgreSQL sees to.

    Set at the start of each transaction (for that transaction only), before the first statement outside of
    one, and again once the time left is less than half of what is in force: a statement may take what is left,
    at most twice over, for a round trip or two a request. A statement always gets the time of the own work, so
    that what became of a payment can still be written down when the neighbours have used up their part.
    """

    def __init__(self, deadline: Deadline, least_ms: int) -> None:
        self._deadline = deadline
        self._least_ms = max(1, least_ms)
        self._outside: tuple[Any, int] = (None, 0)  # the connection it was set on, and the milliseconds
        self._inside = 0

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        wrapper = context["connection"]
        raw = wrapper.connection
        status = raw.info.transaction_status
        if status != TransactionStatus.INERROR:
            self._bound(wrapper, raw, begins=status == TransactionStatus.IDLE)
        return execute(sql, params, many, context)

    def lift(self, raw: Any) -> None:
        """Take the bound off the connection: it goes back to a pool, to work that has other bounds or none."""
        if self._outside[0] is raw and raw.info.transaction_status == TransactionStatus.IDLE:
            with suppress(psycopg.Error):  # a broken connection goes back nowhere
                raw.execute("RESET statement_timeout")

    def _bound(self, wrapper: Any, raw: Any, *, begins: bool) -> None:
        wanted = max(self._least_ms, self._deadline.remaining_ms())
        if wrapper.in_atomic_block:
            if begins or wanted < self._inside / 2:
                self._inside = wanted
                self._set(wrapper, raw, "SET LOCAL", wanted)
        elif self._outside[0] is not raw or wanted < self._outside[1] / 2:
            self._outside = (raw, wanted)
            self._set(wrapper, raw, "SET", wanted)

    def _set(self, wrapper: Any, raw: Any, how: str, milliseconds: int) -> None:
        with wrapper.wrap_database_errors:
            raw.execute(f"{how} statement_timeout = {milliseconds:d}")


@contextmanager
def within(deadline: Deadline) -> Iterator[Deadline]:
    """Work under `deadline`: the current one, and a bound for every statement on this thread's connection."""
    with use_deadline(deadline) as own:
        bound = StatementTimeout(own, settings.HOLDFAST.own_work_ms)
        try:
            with connection.execute_wrapper(bound):
                yield own
        finally:
            if connection.connection is not None:
                bound.lift(connection.connection)


class DeadlineTask(DjangoTask):  # type: ignore[type-arg]  # it takes none at run time
    """A task that takes the deadline of whoever sends it along in its headers.

    What waits in the queue longer than that is dropped. Time in the queue counts: it is told by the wall
    clocks of both sides, and a wrong one can shorten what is left but not lengthen it.
    """

    abstract = True

    def apply_async(self, *args: Any, **options: Any) -> Any:
        """Raises OutOfTime when the sender has no time left."""
        deadline = current_deadline()
        if deadline is not None:
            if deadline.expired:
                raise OutOfTime("too little time left to begin")
            options["headers"] = {**(options.get("headers") or {}), **headers_of(deadline, time.time())}
            options.setdefault("expires", deadline.remaining())
        return super().apply_async(*args, **options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        deadline = deadline_in(self.request.headers or {}, time.time())
        if deadline is None:
            return super().__call__(*args, **kwargs)
        with within(deadline):
            return super().__call__(*args, **kwargs)


def headers_of(deadline: Deadline, wall_now: float) -> dict[str, str]:
    """The headers that carry a deadline; `wall_now` in seconds since 1970."""
    return {HEADER: str(deadline.remaining_ms()), _SENT_AT: f"{wall_now:.3f}"}


def deadline_in(headers: Mapping[str, Any], wall_now: float) -> Deadline | None:
    """The deadline that came with a message, None when there is none or it is garbage."""
    try:
        left_ms = int(str(headers[HEADER]))
        waited_ms = max(0.0, wall_now - float(str(headers[_SENT_AT]))) * 1000
    except (KeyError, ValueError, OverflowError):
        return None
    if not 0 <= left_ms < 10**10 or not waited_ms < 10**13:
        return None
    return Deadline.after_ms(max(0.0, left_ms - waited_ms))
