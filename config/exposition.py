"""Serving the metrics of a whole family of processes, on a port of its own that no proxy leads to.

`METRICS_PORT` (0: no metrics at all) is one per web server or worker. Runs in the first process of the family,
which holds no metrics itself; its children write theirs into a directory.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

logger = logging.getLogger(__name__)
_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def prepare(home: Path, port: int) -> None:
    """Names the directory, emptied of what an earlier run left. Call before the fork and before any metric is made."""
    if port:
        folder = home / "metrics" / str(port)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        os.environ[_VARIABLE] = str(folder)


def wanted() -> bool:
    """Whether this family keeps metrics."""
    return _VARIABLE in os.environ


def serve(host: str, port: int) -> None:
    """Answers scrapes from a thread. A port that is taken costs the metrics, never the service."""
    if not port:
        return
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.multiprocess import MultiProcessCollector

    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    try:
        start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        logger.warning("no metrics are served", extra={"port": port, "error": error.strerror})


def forget(pid: int) -> None:
    """A child has ended: its gauges go, what it counted stays."""
    if wanted():
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(pid)  # type: ignore[no-untyped-call]
