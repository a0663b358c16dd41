"""The numbers must add up before the process serves anybody: Django's system checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register


@register("holdfast")
def numbers_add_up(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    return [Error(text, id=number) for number, text in _problems()]


def _problems() -> Iterator[tuple[str, str]]:
    config = settings.HOLDFAST
    if config.own_work_ms >= config.checkout_budget_ms:
        yield (
            "holdfast.E001",
            f"OWN_WORK_MS ({config.own_work_ms}) leaves nothing of CHECKOUT_BUDGET_MS "
            f"({config.checkout_budget_ms}) for the neighbours; at most {config.checkout_budget_ms - 30} would do.",
        )
    longest = config.worker_budget_ms / 1000 + config.outbox_lease_seconds / 3
    if config.outbox_lease_seconds <= longest:
        yield (
            "holdfast.E002",
            f"OUTBOX_LEASE_SECONDS ({config.outbox_lease_seconds}) must be longer than a worker's call and its "
            f"wait ({longest:.1f} s); {int(config.worker_budget_ms / 1000 * 1.5) + 2} would do.",
        )
    if config.base_currency not in config.currencies:
        yield "holdfast.E003", f"BASE_CURRENCY ({config.base_currency}) must be one of CURRENCIES."
    if config.inline_lease_seconds * 1000 <= config.checkout_budget_ms:
        yield (
            "holdfast.E004",
            f"INLINE_LEASE_SECONDS ({config.inline_lease_seconds}) must be longer than CHECKOUT_BUDGET_MS "
            f"({config.checkout_budget_ms} ms); {config.checkout_budget_ms // 1000 + 5} would do.",
        )
    for name in ("payment", "catalog", "rates"):
        dependency = getattr(config, name)
        if dependency.breaker_min_calls > dependency.breaker_window:
            yield (
                "holdfast.E005",
                f"{name.upper()}_BREAKER_MIN_CALLS ({dependency.breaker_min_calls}) is more than "
                f"{name.upper()}_BREAKER_WINDOW ({dependency.breaker_window}): the breaker could never open; "
                f"{dependency.breaker_window} would do.",
            )
