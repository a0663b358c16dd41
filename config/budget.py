"""What the settings mean: the table of `manage.py budget`, as values."""

from __future__ import annotations

import math
from dataclasses import dataclass

from config.environment import HoldfastSettings
from payments.dependencies import DependencySettings
from resilience import budget
from resilience.budget import CallBudget


@dataclass(frozen=True)
class Row:
    """One neighbour. Milliseconds and seconds as the names say.

    `threads_held` is Little's law without any bulkhead; `threads_taken` is what the bulkheads of all processes
    leave of it. `requests_per_call` is what a full outage sees for each call of ours, `…_at_most` without the
    retry budget.
    """

    name: str
    share_ms: int
    attempts: int
    call_ms: int
    connect_ms: int
    read_ms: int
    pool_wait_ms: int
    pauses_ms: list[int]
    worst_case_ms: int
    threads_held: float
    threads_taken: float
    requests_per_call: float
    requests_per_call_at_most: float
    seconds_until_open: float
    caller_sees: str


@dataclass(frozen=True)
class Table:
    """All neighbours, and the whole."""

    budget_ms: int
    own_work_ms: int
    worst_case_ms: int
    expected_rps: int
    threads: int
    rows: list[Row]


_BUCKETS = "resilience_circuitbreaker_calls_seconds_bucket"
_CALLER_SEES = {
    "payment": "order accepted; payment is being confirmed; once open: accepted, paid later",
    "catalog": "the cart's own prices, marked 'as of'; too old: 503 with Retry-After, cart kept",
    "rates": "the last good rate with its date; too old: the base currency only",
}


def threads_taken(config: HoldfastSettings, dependency: DependencySettings, call: CallBudget) -> float:
    """Threads of all processes a hanging neighbour holds: Little's law, bounded by the bulkheads."""
    held = budget.threads_held(config.expected_rps, call.worst_case_ms / 1000)
    return min(held, dependency.bulkhead * config.web_workers)


def table(config: HoldfastSettings) -> Table:
    """Raises ValueError when the shares leave too little for a call; the system checks say it better."""
    budgets = config.budgets
    rows = [_row(config, name, config.dependencies[name], call) for name, call in budgets.items()]
    return Table(
        budget_ms=config.checkout_budget_ms,
        own_work_ms=config.own_work_ms,
        worst_case_ms=config.own_work_ms + sum(row.worst_case_ms for row in rows),
        expected_rps=config.expected_rps,
        threads=config.web_threads * config.web_workers,
        rows=rows,
    )


def _row(config: HoldfastSettings, name: str, dependency: DependencySettings, call: CallBudget) -> Row:
    pauses = budget.doubling_pauses_ms(call.attempts, call.first_pause_ms, call.pause_cap_ms)
    return Row(
        name=name,
        share_ms=call.share_ms,
        attempts=call.attempts,
        call_ms=call.call_ms,
        connect_ms=call.connect_ms,
        read_ms=call.read_ms,
        pool_wait_ms=call.pool_wait_ms,
        pauses_ms=[int(pause) for pause in pauses],
        worst_case_ms=call.worst_case_ms,
        threads_held=budget.threads_held(config.expected_rps, call.worst_case_ms / 1000),
        threads_taken=threads_taken(config, dependency, call),
        requests_per_call=budget.repeat_amplification(call.attempts, dependency.retry_budget),
        requests_per_call_at_most=budget.repeat_amplification(call.attempts, call.attempts),
        seconds_until_open=budget.seconds_until_open(
            dependency.breaker_min_calls,
            config.expected_rps / config.web_workers,
            call.call_ms / 1000,
            dependency.bulkhead,
        ),
        caller_sees=_CALLER_SEES[name],
    )


def cut_off(exposition: str, row: Row) -> float | None:
    """The share of a neighbour's successful calls, as once measured, that today's timeout would cut off.

    `exposition`: what a metrics port serves. Between two buckets of the histogram calls are taken to be
    spread evenly. A call that the timeout of its time cut off is no success and in neither number, so measure
    with a longer one. None without a successful call. Raises ValueError for anything else than metrics.
    """
    # Not with the other imports: servers read these numbers too, before they have told the library how many they are.
    # Not at the top: who imports the library before the fork would see one process only, see exposition.py.
    from prometheus_client.parser import text_string_to_metric_families

    below: dict[float, float] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            labels = sample.labels
            if sample.name == _BUCKETS and (labels["name"], labels["kind"]) == (row.name, "successful"):
                below[float(labels["le"])] = below.get(float(labels["le"]), 0) + sample.value
    if not below.get(math.inf):
        return None
    limit, edges = row.call_ms / 1000, sorted(below)
    low = max((edge for edge in edges if edge <= limit), default=0.0)
    high = min(edge for edge in edges if edge > limit)
    within = below.get(low, 0.0)
    if high < math.inf:
        within += (below[high] - within) * (limit - low) / (high - low)
    return 1 - within / below[math.inf]
