"""Two of the three questions: is the process alive, may it get traffic. The third is in dependencies.py."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse

from config.single_flight import SingleFlight
from payments.storage import DATABASE_ERRORS, brief
from resilience.stopping import FAMILY, Stage

_started = threading.Event()
READY_SECONDS = 0.8
"""How long a probe may wait to hear whether the migrations are applied; orchestrators ask with 1 s."""


def live(request: HttpRequest) -> HttpResponse:
    """The process answers. Asks nothing and nobody."""
    return JsonResponse({"status": "live"})


def ready(request: HttpRequest) -> HttpResponse:
    """This instance may get traffic: it saw the migrations applied once, and nobody told it to stop.

    Once started, neither a neighbour nor the database nor Redis changes the answer: they are the same for all
    instances, and taking all of them out of rotation would help nobody.
    """
    if FAMILY.now is not Stage.SERVING:
        return _not_ready("stopping")
    if not _started.is_set() and not _has_started():
        return _not_ready("starting")
    return JsonResponse({"status": "ready"})


def _not_ready(status: str) -> HttpResponse:
    response = JsonResponse({"status": status}, status=503)
    response._has_been_logged = True  # type: ignore[attr-defined]  # an answer, not an error of ours
    return response


def _has_started() -> bool:
    try:
        if _migrations.ask(READY_SECONDS):
            _started.set()
    except TimeoutError:
        pass
    return _started.is_set()


def _migrations_applied() -> bool:
    try:
        with brief(READY_SECONDS):
            executor = MigrationExecutor(connection)
            return not executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DATABASE_ERRORS:
        return False
    finally:
        connection.close()


_migrations = SingleFlight(_migrations_applied, fresh_seconds=0.2)

PROBES: Mapping[str, Callable[[HttpRequest], HttpResponse]] = {
    "/health/live/": live,
    "/health/ready/": ready,
}
