"""From the settings of a neighbour to its budget, session and chain. No framework here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from resilience.breaker import BreakerPolicy
from resilience.budget import CallBudget, call_budget, shares
from resilience.bulkhead import BulkheadPolicy
from resilience.chain import Chain, ChainPolicy, Observer
from resilience.http import HttpPolicy, HttpSession
from resilience.ratelimit import LimiterPolicy
from resilience.retry import RetryPolicy


@dataclass(frozen=True)
class DependencySettings:
    """One neighbour, as the environment describes it. Seconds unless the name says otherwise."""

    url: str
    share: int
    attempts: int
    backoff_ms: int
    breaker_window: int
    breaker_min_calls: int
    breaker_failure_rate: int
    breaker_slow_call_ms: int | None
    breaker_slow_rate: int
    breaker_open_seconds: float
    breaker_half_open_calls: int
    breaker_half_open_max_seconds: float
    bulkhead: int
    rate_limit: int
    rate_period_ms: int
    retry_budget: float


_observers: list[Observer] = []
_classes: list[tuple[type[Chain], type[HttpSession]]] = [(Chain, HttpSession)]


def observe_calls(observer: Observer) -> None:
    """Chains built from now on tell `observer` of each attempt. Call once a process, before its first client."""
    _observers[:] = [observer]


def trace_calls(chain: type[Chain], session: type[HttpSession]) -> None:
    """Chains and sessions built from now on are of these classes, which trace. Call once a process, before its first
    client.
    """
    _classes[:] = [(chain, session)]


def call_budgets(
    budget_ms: int, own_work_ms: int, dependencies: Mapping[str, DependencySettings]
) -> dict[str, CallBudget]:
    """What each neighbour gets of one response budget, in milliseconds."""
    parts = shares(budget_ms, own_work_ms, {name: d.share for name, d in dependencies.items()})
    return {
        name: call_budget(parts[name], dependency.attempts, dependency.backoff_ms)
        for name, dependency in dependencies.items()
    }


def patient(call_ms: int) -> CallBudget:
    """The budget of a worker's call: one attempt; its message in the outbox is what repeats it."""
    return call_budget(call_ms, attempts=1, backoff_ms=0)


def build_session(
    dependency: DependencySettings, budget: CallBudget, headers: Mapping[str, str] | None = None
) -> HttpSession:
    """One session a neighbour and process, with the four bounds of an HTTP call."""
    return _classes[0][1](
        HttpPolicy(
            base_url=dependency.url,
            connect_timeout=budget.connect_ms / 1000,
            read_timeout=budget.read_ms / 1000,
            call_timeout=budget.call_ms / 1000,
            pool_wait=budget.pool_wait_ms / 1000,
            pool_size=dependency.bulkhead,
            headers=headers or {},
        )
    )


def build_chain(name: str, dependency: DependencySettings, budget: CallBudget) -> Chain:
    """Retry → breaker → limiter → bulkhead around the calls of one neighbour."""
    slow_ms = dependency.breaker_slow_call_ms or 0.8 * budget.call_ms
    return _classes[0][0](
        ChainPolicy(
            name=name,
            call_timeout=budget.call_ms / 1000,
            retry=RetryPolicy(
                attempts=budget.attempts,
                backoff=budget.first_pause_ms / 1000,
                backoff_cap=budget.pause_cap_ms / 1000,
                budget_ratio=dependency.retry_budget,
            ),
            breaker=BreakerPolicy(
                window=dependency.breaker_window,
                min_calls=dependency.breaker_min_calls,
                failure_rate=float(dependency.breaker_failure_rate),
                slow_call=slow_ms / 1000,
                slow_rate=float(dependency.breaker_slow_rate),
                open_seconds=dependency.breaker_open_seconds,
                half_open_calls=dependency.breaker_half_open_calls,
                half_open_max_seconds=dependency.breaker_half_open_max_seconds,
            ),
            limiter=LimiterPolicy(limit=dependency.rate_limit, period=dependency.rate_period_ms / 1000),
            bulkhead=BulkheadPolicy(max_concurrent=dependency.bulkhead),
        ),
        observer=_observers[0] if _observers else None,
    )
