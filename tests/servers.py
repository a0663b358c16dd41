"""A pytest plugin loaded first: real servers for the whole run, then Django's settings.

PostgreSQL and Valkey come out of wheels, or from DATABASE_URL and BROKER_URL if they are set. With
xdist the controller starts them and its workers inherit the addresses. The three neighbours run as
threads of each test process, behind real sockets.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

_running: list[Any] = []
_homes: list[Path] = []
NEIGHBOURS: dict[str, Any] = {}
_DEFAULTS = {
    "HOLDFAST_ENV": "test",
    "SECRET_KEY": "only-for-tests-0123456789-0123456789-0123456789-0123456789",
    "PAYMENT_API_KEY": "sk_test_suite",
    "PAYMENT_WEBHOOK_SECRET": "whsec_suite",
    "WEB_THREADS": "60",
    "DEGRADED_MAX_ORDER_TOTAL": "1000000",
    "DEGRADED_MAX_UNPAID_TOTAL": "100000000",
    "OUTBOX_RETRY_MIN_SECONDS": "0.05",
    "OUTBOX_RETRY_MAX_SECONDS": "0.2",
    "REPLAY_RATE": "1000",
    "REPLAY_RAMP_SECONDS": "0",
    "PAYMENT_RATE_LIMIT": "1000",
    # Time is the subject of few tests; the others shall not fail because a busy machine was slow.
    "CHECKOUT_BUDGET_MS": "10000",
    "OWN_WORK_MS": "1000",
    "INLINE_LEASE_SECONDS": "12",
    "EXPECTED_RPS": "2",
    "CALLER_TIMEOUT_SECONDS": "3600",
    "NOTICE_OUTAGE_SECONDS": "600",
}


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Comes before Django's settings are read."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    if "HOLDFAST_HOME" not in os.environ:
        _homes.append(temporary_home("holdfast-tests-"))
        os.environ["HOLDFAST_HOME"] = str(_homes[-1])
    home = Path(os.environ["HOLDFAST_HOME"])
    from sandbox.embedded import start_postgres, start_valkey

    if "DATABASE_URL" not in os.environ:
        _running.append(start_postgres(home / "postgres", durable=False))
        os.environ["DATABASE_URL"] = _running[-1].url
    if "BROKER_URL" not in os.environ:
        _running.append(start_valkey(home / "valkey"))
        os.environ["BROKER_URL"] = _running[-1].url
    _start_neighbours()


def end_with_the_run(thing: Any) -> None:
    """`thing.stop()` is called at the end, before the servers stop."""
    _running.append(thing)


def temporary_home(prefix: str) -> Path:
    """A new folder; run by root, PostgreSQL is another user's, who has to pass through it."""
    home = Path(tempfile.mkdtemp(prefix=prefix))
    home.chmod(0o711)
    return home


def _start_neighbours() -> None:
    from sandbox.catalog import Catalog
    from sandbox.gateway import Gateway
    from sandbox.rates import Rates

    distributes = any(argument.startswith("-n") for argument in sys.argv)
    if distributes and "PYTEST_XDIST_WORKER" not in os.environ:
        for name in ("PAYMENT", "CATALOG", "RATES"):
            os.environ[f"{name}_URL"] = "http://127.0.0.1:9"
        return
    for name, neighbour in (("PAYMENT", Gateway()), ("CATALOG", Catalog()), ("RATES", Rates())):
        NEIGHBOURS[name.lower()] = neighbour
        _running.append(neighbour)
        os.environ[f"{name}_URL"] = neighbour.url
        os.environ[f"{name}_CONTROL_URL"] = neighbour.control_url


def pytest_unconfigure() -> None:
    while _running:
        _running.pop().stop()
    while _homes:
        shutil.rmtree(_homes.pop(), ignore_errors=True)
