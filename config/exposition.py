"""Serving the metrics of a whole family of processes, on a port of its own that no proxy leads to.

`METRICS_PORT` (0: no metrics at all) is one per web server or worker. Runs in the first process of the family,
which holds no metrics itself; its children write theirs into a directory. Nothing here may be imported together
with `prometheus_client` before `prepare`: the library decides at its import whether it is one process or many.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)
_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_LIVE = re.compile(r"gauge_live\w+_(\d+)\.db")


def prepare(home: Path, port: int) -> None:
    """Names this family's directory and removes those of families that are gone. Call before the fork and before any
    metric is made; a second call (gunicorn reads its configuration again on SIGHUP) changes nothing.
    """
    folder = home / "metrics" / f"{socket.gethostname()}-{port}-{os.getpid()}"
    if port and os.environ.get(_VARIABLE) != str(folder):
        if "prometheus_client" in sys.modules:
            raise RuntimeError("prometheus_client was imported too early: it would see one process only")
        for old in folder.parent.glob(f"{socket.gethostname()}-*"):
            pid = old.name.rpartition("-")[2]
            if old == folder or not os.path.exists(f"/proc/{pid}"):
                shutil.rmtree(old, ignore_errors=True)
        folder.mkdir(parents=True)
        os.environ[_VARIABLE] = str(folder)


def wanted() -> bool:
    """Whether this family keeps metrics."""
    return _VARIABLE in os.environ


def serve(host: str, port: int) -> None:
    """Answers scrapes from a thread. A port that is taken costs the metrics, never the service."""
    if not port:
        return
    from prometheus_client import start_http_server

    try:
        start_http_server(port, addr=host, registry=_Family())
    except OSError as error:
        logger.warning("no metrics are served", extra={"port": port, "error": error.strerror})


class _Family:
    """What all processes of the family have written, the gauges of those that still live."""

    def collect(self) -> Iterator[Any]:
        from prometheus_client import CollectorRegistry
        from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

        # A process that was killed tells nobody, so whoever asks looks: an open breaker must not outlive it.
        for file in Path(os.environ[_VARIABLE]).iterdir():
            match = _LIVE.fullmatch(file.name)
            if match and not os.path.exists(f"/proc/{match[1]}"):
                mark_process_dead(int(match[1]))  # type: ignore[no-untyped-call]
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return iter(registry.collect())
