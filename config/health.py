"""Three questions, three answers: is the process alive, may it get traffic, what works around it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse

from resilience.stopping import FAMILY, Stage

_started = threading.Event()


def live(request: HttpRequest) -> HttpResponse:
    """The process answers. Asks nothing and nobody."""
    return JsonResponse({"status": "live"})


def ready(request: HttpRequest) -> HttpResponse:
    """This instance may get traffic: it saw the migrations applied once, and nobody told it to stop."""
    if FAMILY.now is not Stage.SERVING:
        return JsonResponse({"status": "stopping"}, status=503)
    if not _started.is_set() and not _migrations_applied():
        return JsonResponse({"status": "starting"}, status=503)
    _started.set()
    return JsonResponse({"status": "ready"})


def _migrations_applied() -> bool:
    try:
        executor = MigrationExecutor(connection)
        return not executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError:
        return False
    finally:
        connection.close()


PROBES: Mapping[str, Callable[[HttpRequest], HttpResponse]] = {
    "/health/live/": live,
    "/health/ready/": ready,
}
