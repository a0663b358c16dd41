"""The environment, read once into frozen, validated values.

Every problem is collected, so that a start with three wrong variables says so in three sentences
at once instead of failing three times.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from payments.dependencies import DependencySettings, call_budgets
from resilience.budget import CallBudget

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_VISIBLE = re.compile(r"[!-~]+")


class ConfigurationError(Exception):
    """One or more variables are missing or wrong. The message lists them all, without their values' secrets."""


@dataclass(frozen=True)
class Asked:
    """One variable that the program reads: what it must look like, and the default, None where it must be set."""

    name: str
    form: str
    default: str | None


class Reader:
    """Typed access to environment variables that gathers problems instead of raising at the first."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.problems: list[str] = []
        self.asked: list[Asked] = []

    def text(self, name: str, default: str | None = None) -> str:
        """The variable, or the default; without a default it must be set and not empty."""
        self._note(name, "text", default)
        value = self._environ.get(name, "").strip()
        if value:
            return value
        if default is None:
            self.problems.append(f"{name} is not set.")
            return ""
        return default

    def integer(self, name: str, default: int, low: int = 0, high: int = 10**9) -> int:
        self._note(name, f"whole number, {_range(low, high)}", str(default))
        raw = self._environ.get(name, "").strip()
        if not raw:
            return default
        if not _WHOLE.fullmatch(raw):
            self.problems.append(f"{name} must be a whole number, got {raw!r}.")
            return default
        if not low <= int(raw) <= high:
            self.problems.append(f"{name} must be between {low} and {high}, got {raw}.")
            return default
        return int(raw)

    def number(self, name: str, default: str, low: str = "0", high: str = "1e9") -> Decimal:
        self._note(name, f"number, {_range(Decimal(low), Decimal(high))}", default)
        raw = self._environ.get(name, "").strip() or default
        try:
            value = Decimal(raw if raw.isascii() and "_" not in raw else "?")
        except InvalidOperation:
            self.problems.append(f"{name} must be a number, got {raw!r}.")
            return Decimal(default)
        if not value.is_finite() or not Decimal(low) <= value <= Decimal(high):
            self.problems.append(f"{name} must be between {low} and {high}, got {raw}.")
            return Decimal(default)
        return value

    def words(self, name: str, default: str = "") -> list[str]:
        self._note(name, "words, separated by commas", default)
        return [word.strip() for word in self._environ.get(name, default).split(",") if word.strip()]

    def url(self, name: str, schemes: tuple[str, ...], default: str | None = None) -> str:
        """The variable, or "" for one that is no such URL. Its value may hold a password, so no problem quotes it."""
        value = self.text(name, default)
        self.asked[-1] = Asked(name, f"URL, {' or '.join(f'{scheme}://' for scheme in schemes)}", default)
        if not value or _is_url(value, schemes):
            return value
        plain = ", without user, query or fragment" if "http" in schemes else ""
        self.problems.append(f"{name} must be a URL of the form {schemes[0]}://host[:port]/…{plain}.")
        return ""

    def key(self, name: str) -> str:
        """A secret that is sent in a header, where only visible ASCII goes."""
        value = self.text(name)
        if value and not _VISIBLE.fullmatch(value):
            self.problems.append(f"{name} must consist of visible ASCII characters.")
        return value

    def _note(self, name: str, form: str, default: str | None) -> None:
        self.asked.append(Asked(name, form, default))

    def finish(self) -> None:
        """Raises ConfigurationError if anything was missing or wrong."""
        if self.problems:
            raise ConfigurationError("Holdfast cannot start. " + " ".join(self.problems))


def _is_url(value: str, schemes: tuple[str, ...]) -> bool:
    try:
        parts = urlsplit(value)
        good = parts.scheme in schemes and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    if "http" in schemes:  # what resilience.http would refuse at the first call
        return good and parts.username is None and not parts.query and not parts.fragment
    return good and not parts.fragment


def _range(low: int | Decimal, high: int | Decimal) -> str:
    """Bounds in words; a bound that nobody would reach is none."""
    return f"from {low}" if high >= 10**9 else f"{low} to {high}"


@dataclass(frozen=True)
class HoldfastSettings:
    """Everything the checkout decides by. Seconds unless a name says otherwise."""

    checkout_budget_ms: int
    own_work_ms: int
    worker_budget_ms: int
    payment: DependencySettings
    catalog: DependencySettings
    rates: DependencySettings
    catalog_snapshot_seconds: int
    base_currency: str
    currencies: tuple[str, ...]
    reserve_seconds: int
    action_required_seconds: int
    degraded_reserve_seconds: int
    degraded_max_order_total: int
    degraded_max_unpaid_orders: int
    degraded_max_unpaid_total: int
    degraded_after_open_seconds: float
    degraded_quorum: float
    degraded_min_seconds: float
    recover_after_closed_seconds: float
    rates_fresh_seconds: int
    rates_provider_max_days: int
    rates_show_limit_seconds: int
    rates_charge_limit_seconds: int
    rates_refresh_seconds: int
    rates_max_jump: Decimal
    inline_lease_seconds: int
    outbox_lease_seconds: int
    outbox_max_attempts: int
    outbox_retry_min_seconds: float
    outbox_retry_max_seconds: float
    outbox_keep_seconds: int
    payment_key_seconds: int
    void_look_seconds: float
    action_poll_seconds: float
    replay_rate: float
    replay_ramp_seconds: int
    tick_seconds: float
    expected_rps: int
    web_threads: int
    web_workers: int
    web_backlog: int
    spare_threads: int
    shed_checkout_share: float
    shed_browsing_share: float
    queue_limit_ms: int
    retry_after_seconds: int
    caller_timeout_seconds: float
    drain_seconds: float
    grace_seconds: float
    orchestrator_grace_seconds: float
    task_seconds: int
    broker_visibility_seconds: int
    broker_lost_seconds: float
    notice_outage_seconds: float
    otlp_endpoint: str

    @property
    def dependencies(self) -> dict[str, DependencySettings]:
        """The neighbours by the name their settings begin with, in lower case."""
        return {"payment": self.payment, "catalog": self.catalog, "rates": self.rates}

    @property
    def budgets(self) -> dict[str, CallBudget]:
        """What each neighbour gets of one checkout's budget."""
        return call_budgets(self.checkout_budget_ms, self.own_work_ms, self.dependencies)


def _dependency(
    env: Reader, prefix: str, share: int, attempts: int, limit: int, period: int
) -> DependencySettings:
    slow = env.integer(f"{prefix}_BREAKER_SLOW_CALL_MS", 0)
    return DependencySettings(
        url=env.url(f"{prefix}_URL", ("http", "https")),
        share=env.integer(f"{prefix}_SHARE", share, low=1, high=1000),
        attempts=env.integer(f"{prefix}_ATTEMPTS", attempts, low=1, high=10),
        backoff_ms=env.integer(f"{prefix}_BACKOFF_MS", 50, high=60_000),
        breaker_window=env.integer(f"{prefix}_BREAKER_WINDOW", 10, low=1, high=10_000),
        breaker_min_calls=env.integer(f"{prefix}_BREAKER_MIN_CALLS", 10, low=1, high=10_000),
        breaker_failure_rate=env.integer(f"{prefix}_BREAKER_FAILURE_RATE", 50, low=1, high=100),
        breaker_slow_call_ms=slow or None,
        breaker_slow_rate=env.integer(f"{prefix}_BREAKER_SLOW_RATE", 80, low=1, high=100),
        breaker_open_seconds=float(env.number(f"{prefix}_BREAKER_OPEN_SECONDS", "30", low="0.01")),
        breaker_half_open_calls=env.integer(f"{prefix}_BREAKER_HALF_OPEN_CALLS", 3, low=1, high=1000),
        breaker_half_open_max_seconds=float(
            env.number(f"{prefix}_BREAKER_HALF_OPEN_MAX_SECONDS", "30", low="0.01")
        ),
        bulkhead=env.integer(f"{prefix}_BULKHEAD", 20, low=1, high=10_000),
        rate_limit=env.integer(f"{prefix}_RATE_LIMIT", limit, low=1, high=100_000),
        rate_period_ms=env.integer(f"{prefix}_RATE_PERIOD_MS", period, low=1, high=3_600_000),
        retry_budget=float(env.number(f"{prefix}_RETRY_BUDGET", "0.1", high="1")),
    )


def _surroundings(env: Reader) -> dict[str, Any]:
    """What is around the checkout: traffic, servers, orchestrator, broker, collector."""
    return {
        "expected_rps": env.integer("EXPECTED_RPS", 40, low=1),
        "web_threads": env.integer("WEB_THREADS", 16, low=1, high=400),
        "web_workers": env.integer("WEB_WORKERS", 2, low=1, high=1000),
        "spare_threads": env.integer("SPARE_THREADS", 8, low=2, high=150),
        "shed_checkout_share": float(env.number("SHED_CHECKOUT_SHARE", "0.9", low="0.01", high="1")),
        "shed_browsing_share": float(env.number("SHED_BROWSING_SHARE", "0.75", low="0.01", high="1")),
        "queue_limit_ms": env.integer("QUEUE_LIMIT_MS", 250, low=1, high=60_000),
        "retry_after_seconds": env.integer("RETRY_AFTER_SECONDS", 1, low=1, high=3600),
        "web_backlog": env.integer("WEB_BACKLOG", 256, low=1, high=65_535),
        "caller_timeout_seconds": float(env.number("CALLER_TIMEOUT_SECONDS", "10", low="0.1")),
        "drain_seconds": float(env.number("DRAIN_SECONDS", "5")),
        "grace_seconds": float(env.number("GRACE_SECONDS", "20")),
        "orchestrator_grace_seconds": float(env.number("ORCHESTRATOR_GRACE_SECONDS", "30")),
        "task_seconds": env.integer("TASK_SECONDS", 90, low=1),
        "broker_visibility_seconds": env.integer("BROKER_VISIBILITY_SECONDS", 3600, low=1),
        "broker_lost_seconds": float(env.number("BROKER_LOST_SECONDS", "300", low="1")),
        "notice_outage_seconds": float(env.number("NOTICE_OUTAGE_SECONDS", "60", low="0.1")),
        "otlp_endpoint": env.url("OTEL_EXPORTER_OTLP_ENDPOINT", ("http", "https"), default=""),
    }


def read_holdfast(env: Reader) -> HoldfastSettings:
    """The application's own settings. Problems are gathered in `env`."""
    return HoldfastSettings(
        checkout_budget_ms=env.integer("CHECKOUT_BUDGET_MS", 500, low=10, high=120_000),
        own_work_ms=env.integer("OWN_WORK_MS", 100, low=0, high=60_000),
        worker_budget_ms=env.integer("WORKER_BUDGET_MS", 10_000, low=100, high=120_000),
        payment=_dependency(env, "PAYMENT", share=3, attempts=1, limit=5, period=100),
        catalog=_dependency(env, "CATALOG", share=1, attempts=2, limit=50, period=100),
        rates=_dependency(env, "RATES", share=1, attempts=2, limit=50, period=100),
        catalog_snapshot_seconds=env.integer("CATALOG_SNAPSHOT_SECONDS", 900),
        base_currency=env.text("BASE_CURRENCY", "EUR"),
        currencies=tuple(env.words("CURRENCIES", "EUR,USD,JPY,KWD")),
        reserve_seconds=env.integer("RESERVE_SECONDS", 900, low=1),
        action_required_seconds=env.integer("ACTION_REQUIRED_SECONDS", 900, low=1),
        degraded_reserve_seconds=env.integer("DEGRADED_RESERVE_SECONDS", 3600, low=1),
        degraded_max_order_total=env.integer("DEGRADED_MAX_ORDER_TOTAL", 50_000, low=0),
        degraded_max_unpaid_orders=env.integer("DEGRADED_MAX_UNPAID_ORDERS", 10_000, low=0),
        degraded_max_unpaid_total=env.integer("DEGRADED_MAX_UNPAID_TOTAL", 1_000_000, high=10**12),
        degraded_after_open_seconds=float(env.number("DEGRADED_AFTER_OPEN_SECONDS", "60", low="0.1")),
        degraded_quorum=float(env.number("DEGRADED_QUORUM", "0.5", low="0.01", high="1")),
        degraded_min_seconds=float(env.number("DEGRADED_MIN_SECONDS", "60")),
        recover_after_closed_seconds=float(env.number("RECOVER_AFTER_CLOSED_SECONDS", "15", low="0.1")),
        rates_fresh_seconds=env.integer("RATES_FRESH_SECONDS", 3600, low=1),
        rates_provider_max_days=env.integer("RATES_PROVIDER_MAX_DAYS", 4),
        rates_show_limit_seconds=env.integer("RATES_SHOW_LIMIT_SECONDS", 864_000),
        rates_charge_limit_seconds=env.integer("RATES_CHARGE_LIMIT_SECONDS", 86_400),
        rates_refresh_seconds=env.integer("RATES_REFRESH_SECONDS", 600, low=1),
        rates_max_jump=env.number("RATES_MAX_JUMP", "0.5", low="0.001", high="100"),
        inline_lease_seconds=env.integer("INLINE_LEASE_SECONDS", 5, low=1),
        outbox_lease_seconds=env.integer("OUTBOX_LEASE_SECONDS", 30, low=1),
        outbox_max_attempts=env.integer("OUTBOX_MAX_ATTEMPTS", 10, low=1, high=1000),
        outbox_retry_min_seconds=float(env.number("OUTBOX_RETRY_MIN_SECONDS", "1", low="0.01")),
        outbox_retry_max_seconds=float(env.number("OUTBOX_RETRY_MAX_SECONDS", "60", low="0.01")),
        outbox_keep_seconds=env.integer("OUTBOX_KEEP_SECONDS", 604_800, low=1),
        payment_key_seconds=env.integer("PAYMENT_KEY_SECONDS", 82_800, low=1, high=86_400),
        void_look_seconds=float(env.number("VOID_LOOK_SECONDS", "60", low="0.01")),
        action_poll_seconds=float(env.number("ACTION_POLL_SECONDS", "10", low="0.1")),
        replay_rate=float(env.number("REPLAY_RATE", "5", low="0.01")),
        replay_ramp_seconds=env.integer("REPLAY_RAMP_SECONDS", 10),
        tick_seconds=float(env.number("TICK_SECONDS", "1", low="0.1")),
        **_surroundings(env),
    )


def database_settings(url: str) -> dict[str, object]:
    """Django's settings of one PostgreSQL URL."""
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "OPTIONS": dict(parse_qsl(parts.query)),
    }


def use_running_demo() -> None:
    """Lets `manage.py` beside a running demo find its servers; what the environment says wins."""
    if "DATABASE_URL" in os.environ:
        return
    home = Path(os.environ.get("HOLDFAST_HOME", Path(__file__).resolve().parent.parent / ".holdfast"))
    try:
        lines = (home / "demo.env").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        name, separator, value = line.partition("=")
        if separator and not name.startswith("#"):
            os.environ.setdefault(name.strip(), value.strip())
