"""A pytest plugin loaded first: a real PostgreSQL and a real Valkey for the whole run, then the settings.

DATABASE_URL and BROKER_URL in the environment point the suite at servers of your own. With xdist the
controller starts the servers and its workers inherit the addresses.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

_running: list[Any] = []
_DEFAULTS = {
    "HOLDFAST_ENV": "test",
    "SECRET_KEY": "only-for-tests-0123456789-0123456789-0123456789-0123456789",
    "PAYMENT_URL": "http://127.0.0.1:9",
    "PAYMENT_API_KEY": "sk_test_suite",
    "PAYMENT_WEBHOOK_SECRET": "whsec_suite",
    "CATALOG_URL": "http://127.0.0.1:9",
    "RATES_URL": "http://127.0.0.1:9",
    "WEB_THREADS": "60",
    # Time is the subject of few tests; the others shall not fail because a busy machine was slow.
    "CHECKOUT_BUDGET_MS": "10000",
}


def pytest_load_initial_conftests() -> None:
    """Comes before Django's settings are read."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    home = Path(tempfile.mkdtemp(prefix="holdfast-tests-"))
    os.environ.setdefault("HOLDFAST_HOME", str(home))
    from sandbox.embedded import start_postgres, start_valkey

    if "DATABASE_URL" not in os.environ:
        _running.append(start_postgres(home / "postgres", durable=False))
        os.environ["DATABASE_URL"] = _running[-1].url
    if "BROKER_URL" not in os.environ:
        _running.append(start_valkey(home / "valkey"))
        os.environ["BROKER_URL"] = _running[-1].url


pytest_load_initial_conftests.tryfirst = True  # type: ignore[attr-defined]


def pytest_unconfigure() -> None:
    while _running:
        _running.pop().stop()
