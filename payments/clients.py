"""The payment gateway's client, built once per process on first use, so after any fork.

Two of them: requests of shoppers live within the response budget, workers can wait longer. A
process normally uses one of the two.
"""

from __future__ import annotations

import threading

from django.conf import settings

from payments.dependencies import build_chain, build_session, patient
from payments.gateway import Gateway

_lock = threading.Lock()
_built: dict[bool, Gateway] = {}


def _build(inline: bool) -> Gateway:
    config = settings.HOLDFAST
    budget = config.budgets["payment"] if inline else patient(config.worker_budget_ms)
    headers = {"Authorization": f"Bearer {settings.PAYMENT_API_KEY}"}
    return Gateway(
        build_session(config.payment, budget, headers), build_chain("payment", config.payment, budget)
    )


def _gateway(inline: bool) -> Gateway:
    with _lock:
        if inline not in _built:
            _built[inline] = _build(inline)
        return _built[inline]


def inline_gateway() -> Gateway:
    """For a shopper's request: timeouts out of the response budget."""
    return _gateway(True)


def background_gateway() -> Gateway:
    """For workers: one attempt of up to the worker's budget; the outbox does the repeating."""
    return _gateway(False)


def built_background_gateway() -> Gateway | None:
    """The workers' client, if this process has made it: for those who only look."""
    return _built.get(False)


def reset() -> None:
    """Forgets the clients, for tests that change settings."""
    _built.clear()
