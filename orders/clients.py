"""The catalog's and the rates' clients, built once per process on first use, so after any fork."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from functools import cache

from django.conf import settings

from orders.catalog import CatalogClient
from orders.rates import RatesClient
from payments.dependencies import build_chain, build_session

_lock = threading.Lock()


def _utc_now() -> datetime:
    return datetime.now(UTC)


@cache
def _catalog() -> CatalogClient:
    config = settings.HOLDFAST
    budget = config.budgets["catalog"]
    return CatalogClient(
        build_session(config.catalog, budget),
        build_chain("catalog", config.catalog, budget),
        _utc_now,
        base=config.base_currency,
    )


@cache
def _rates() -> RatesClient:
    config = settings.HOLDFAST
    budget = config.budgets["rates"]
    return RatesClient(
        build_session(config.rates, budget),
        build_chain("rates", config.rates, budget),
        base=config.base_currency,
    )


def catalog() -> CatalogClient:
    with _lock:
        return _catalog()


def rates() -> RatesClient:
    with _lock:
        return _rates()


def reset() -> None:
    """Forgets the clients, for tests that change settings."""
    _catalog.cache_clear()
    _rates.cache_clear()
