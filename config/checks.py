"""The numbers must add up before the process serves anybody: Django's system checks.

Each sentence names the setting, the numbers, and the nearest value that would do. Errors stop web, worker
and commands; warnings are shown.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register

from config.budget import threads_taken
from config.environment import ConfigurationError, HoldfastSettings
from orders.currencies import EXPONENTS
from payments.dependencies import DependencySettings, patient
from resilience import budget
from resilience.budget import CallBudget, call_budget

CALL_AND_PAUSES = 4 / 3  # the pauses may take a quarter of a share


@dataclass(frozen=True)
class Problem:
    """One thing that does not add up. `number` begins with E (stops everything) or W."""

    number: str
    text: str


@register("holdfast")
def numbers_add_up(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    return [
        (Error if found.number.startswith("E") else Warning)(found.text, id=f"holdfast.{found.number}")
        for found in problems(settings.HOLDFAST)
    ]


@register("holdfast", deploy=True)
def fit_for_strangers(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """What a trial may do without, and a shop on the Internet may not: `check --deploy`."""
    found = (
        (
            not settings.EMAIL_HOST,
            "W004",
            "EMAIL_HOST is not set: mails are written to a folder and reach nobody.",
        ),
        (
            not settings.SITE_URL.startswith("https://"),
            "W005",
            f"SITE_URL ({settings.SITE_URL}) is where the links in mails lead; https://your.shop would do.",
        ),
        (
            "*" in settings.ALLOWED_HOSTS,
            "W006",
            "ALLOWED_HOSTS is *: anybody's name would be taken for the shop's.",
        ),
        (
            not settings.HOLDFAST.payment.url.startswith("https://"),
            "W007",
            "PAYMENT_URL is not https: the key would travel in the open.",
        ),
    )
    return [Warning(text, id=f"holdfast.{number}") for wrong, number, text in found if wrong]


def insist() -> None:
    """For processes that Django does not check by itself: ends them with the sentences of all errors."""
    try:
        found = problems(settings.HOLDFAST)
    except ConfigurationError as error:
        sys.exit(str(error))
    errors = [f"{problem.text} (holdfast.{problem.number})" for problem in found if problem.number[0] == "E"]
    if errors:
        sys.exit("Holdfast cannot start. " + " ".join(errors))


def problems(config: HoldfastSettings) -> list[Problem]:
    """Everything that does not add up, in the order of the numbers."""
    found = [problem for rule in _RULES for problem in rule(config)]
    parts = _shares(config)
    for name, dependency in config.dependencies.items():
        if parts is not None:
            found += _of_dependency(config, name.upper(), dependency, parts[name])
    return sorted(found, key=lambda problem: problem.number)


def _shares(config: HoldfastSettings) -> dict[str, int] | None:
    weights = {name: dependency.share for name, dependency in config.dependencies.items()}
    if config.own_work_ms >= config.checkout_budget_ms:
        return None
    return budget.shares(config.checkout_budget_ms, config.own_work_ms, weights)


# The budget and the leases


def _own_work(config: HoldfastSettings) -> Iterator[Problem]:
    if config.own_work_ms >= config.checkout_budget_ms:
        yield Problem(
            "E001",
            f"OWN_WORK_MS ({config.own_work_ms}) leaves nothing of CHECKOUT_BUDGET_MS "
            f"({config.checkout_budget_ms}) for the neighbours; {config.checkout_budget_ms * 4 // 5} "
            "would do.",
        )


def _outbox_lease(config: HoldfastSettings) -> Iterator[Problem]:
    longest = config.worker_budget_ms / 1000 + config.outbox_lease_seconds / 3
    if config.outbox_lease_seconds <= longest:
        yield Problem(
            "E002",
            f"OUTBOX_LEASE_SECONDS ({config.outbox_lease_seconds}) must be longer than a worker's call and its "
            f"wait ({longest:.1f} s); {int(config.worker_budget_ms / 1000 * 1.5) + 1} would do.",
        )


def _currencies(config: HoldfastSettings) -> Iterator[Problem]:
    unknown = [code for code in config.currencies if code not in EXPONENTS]
    if unknown or len(set(config.currencies)) < len(config.currencies):
        good = ",".join(dict.fromkeys(code for code in config.currencies if code in EXPONENTS))
        yield Problem(
            "E017",
            f"CURRENCIES ({','.join(config.currencies)}) must be codes of ISO 4217 in capitals, each once; "
            f"{good or 'EUR'} would do.",
        )


def _base_currency(config: HoldfastSettings) -> Iterator[Problem]:
    if config.base_currency not in config.currencies:
        yield Problem(
            "E003",
            f"BASE_CURRENCY ({config.base_currency}) must be one of CURRENCIES "
            f"({','.join(config.currencies)}); {','.join((config.base_currency, *config.currencies))} would do.",
        )


def _inline_lease(config: HoldfastSettings) -> Iterator[Problem]:
    if config.inline_lease_seconds * 1000 <= config.checkout_budget_ms:
        yield Problem(
            "E004",
            f"INLINE_LEASE_SECONDS ({config.inline_lease_seconds}) must be longer than CHECKOUT_BUDGET_MS "
            f"({config.checkout_budget_ms} ms); {config.checkout_budget_ms // 1000 + 1} would do.",
        )


# One neighbour


def _of_dependency(
    config: HoldfastSettings, prefix: str, dependency: DependencySettings, share: int
) -> Iterator[Problem]:
    yield from _window(prefix, dependency)
    if share < math.ceil(dependency.attempts * budget.LEAST_CALL_MS * CALL_AND_PAUSES):
        yield _share_too_small(config, prefix, dependency, share)
        return
    call = call_budget(share, dependency.attempts, dependency.backoff_ms)
    yield from _slow_call(config, prefix, dependency, call)
    yield from _notices(config, prefix, dependency, call)
    yield from _pauses(prefix, dependency, call)
    yield from _threads(config, prefix, dependency, call)
    yield from _limit(config, prefix, dependency)


def _window(prefix: str, dependency: DependencySettings) -> Iterator[Problem]:
    if dependency.breaker_min_calls > dependency.breaker_window:
        yield Problem(
            "E005",
            f"{prefix}_BREAKER_MIN_CALLS ({dependency.breaker_min_calls}) is more than "
            f"{prefix}_BREAKER_WINDOW ({dependency.breaker_window}): the breaker could never open; "
            f"{dependency.breaker_window} would do.",
        )


def _share_too_small(
    config: HoldfastSettings, prefix: str, dependency: DependencySettings, share: int
) -> Problem:
    needed = math.ceil(dependency.attempts * budget.LEAST_CALL_MS * CALL_AND_PAUSES)
    weights = sum(other.share for other in config.dependencies.values())
    enough = config.own_work_ms + math.ceil(needed * weights / dependency.share)
    return Problem(
        "E006",
        f"CHECKOUT_BUDGET_MS ({config.checkout_budget_ms}) leaves {share} ms for {prefix.lower()}, too little "
        f"for {prefix}_ATTEMPTS ({dependency.attempts}) of at least {budget.LEAST_CALL_MS} ms and their pauses; "
        f"{enough} would do.",
    )


def _slow_call(
    config: HoldfastSettings, prefix: str, dependency: DependencySettings, call: CallBudget
) -> Iterator[Problem]:
    slow = dependency.breaker_slow_call_ms
    timeout, whose = call.call_ms, "a call"
    if dependency is config.payment:  # the workers' calls have a timeout of their own
        timeout, whose = min((timeout, whose), (patient(config.worker_budget_ms).call_ms, "a worker's call"))
    if slow is not None and slow >= timeout:
        yield Problem(
            "E007",
            f"{prefix}_BREAKER_SLOW_CALL_MS ({slow}) is not below the timeout of {whose} ({timeout} ms): "
            f"no call could ever be slow; {timeout - 1} would do.",
        )


def _notices(
    config: HoldfastSettings, prefix: str, dependency: DependencySettings, call: CallBudget
) -> Iterator[Problem]:
    rps = config.expected_rps / config.web_workers

    def until_open(calls: int) -> float:
        return budget.seconds_until_open(calls, rps, call.call_ms / 1000, dependency.bulkhead)

    wanted = dependency.breaker_min_calls
    took = until_open(wanted)
    if took > config.notice_outage_seconds:
        fitting = _most(lambda calls: until_open(calls) <= config.notice_outage_seconds, wanted)
        yield Problem(
            "E008",
            f"{prefix}_BREAKER_MIN_CALLS ({wanted}) come together in {took:.1f} s at EXPECTED_RPS "
            f"({config.expected_rps}) over WEB_WORKERS ({config.web_workers}), longer than the outage to notice "
            f"(NOTICE_OUTAGE_SECONDS, {config.notice_outage_seconds:g}); "
            + (f"{fitting} would do." if fitting else f"NOTICE_OUTAGE_SECONDS={math.ceil(took)} would do."),
        )


def _pauses(prefix: str, dependency: DependencySettings, call: CallBudget) -> Iterator[Problem]:
    if dependency.attempts == 1 or call.first_pause_ms >= 1:
        return
    if dependency.backoff_ms == 0:
        wrong, right = f"{prefix}_BACKOFF_MS (0)", "1"
    else:
        fitting = _most(lambda n: call_budget(call.share_ms, n, 1).first_pause_ms >= 1, dependency.attempts)
        wrong, right = f"{prefix}_ATTEMPTS ({dependency.attempts})", str(fitting or 1)
    yield Problem(
        "E009",
        f"{wrong} caps the first pause at 0 of the {call.share_ms} ms for {prefix.lower()}, which swallows the "
        f"jitter: all callers would repeat together; {right} would do.",
    )


def _threads(
    config: HoldfastSettings, prefix: str, dependency: DependencySettings, call: CallBudget
) -> Iterator[Problem]:
    threads = config.web_threads * config.web_workers
    held = threads_taken(config, dependency, call)
    if held >= threads:
        yield Problem(
            "E015",
            f"{prefix}_BULKHEAD ({dependency.bulkhead}) lets a hanging {prefix.lower()} hold {held:g} threads "
            f"({config.expected_rps} rps × {call.worst_case_ms / 1000:g} s), all of WEB_THREADS "
            f"({config.web_threads}) × WEB_WORKERS ({config.web_workers}); {max(1, config.web_threads - 1)} would do.",
        )


def _limit(config: HoldfastSettings, prefix: str, dependency: DependencySettings) -> Iterator[Problem]:
    per_second = dependency.rate_limit * 1000 / dependency.rate_period_ms
    needed = config.expected_rps / config.web_workers
    if per_second < needed:
        enough = math.ceil(needed * dependency.rate_period_ms / 1000)
        yield Problem(
            "W001",
            f"{prefix}_RATE_LIMIT ({dependency.rate_limit} per {dependency.rate_period_ms} ms) refuses healthy "
            f"calls at {needed:g} rps a process; {enough} would do.",
        )
    if dependency.attempts > 1 and dependency.retry_budget == 0:
        yield Problem(
            "W002",
            f"{prefix}_RETRY_BUDGET (0) leaves {prefix}_ATTEMPTS ({dependency.attempts}) next to no repeat; "
            "0.1 would do.",
        )


# What surrounds the call

PROMISED_SECONDS = 3600
"""What a shopper reads: "within the hour"."""


def _outbox_pauses(config: HoldfastSettings) -> Iterator[Problem]:
    low, high = config.outbox_retry_min_seconds, config.outbox_retry_max_seconds
    if budget.jitter_swallowed(low, high):
        yield Problem(
            "E010",
            f"OUTBOX_RETRY_MAX_SECONDS ({high:g}) is not above OUTBOX_RETRY_MIN_SECONDS ({low:g}): the cap "
            f"swallows the jitter and all messages come back together; {2 * low:g} would do.",
        )


def _reserve(config: HoldfastSettings) -> Iterator[Problem]:
    drain = budget.drain_seconds(config.degraded_max_unpaid_orders, config.replay_rate)
    drain += config.replay_ramp_seconds
    if config.degraded_reserve_seconds < drain:
        yield Problem(
            "E011",
            f"DEGRADED_RESERVE_SECONDS ({config.degraded_reserve_seconds}) is shorter than it takes to replay "
            f"DEGRADED_MAX_UNPAID_ORDERS ({config.degraded_max_unpaid_orders}) at REPLAY_RATE "
            f"({config.replay_rate:g}/s, ramp {config.replay_ramp_seconds} s); {math.ceil(drain)} would do.",
        )
    if config.degraded_reserve_seconds > PROMISED_SECONDS:
        yield Problem(
            "W003",
            f"DEGRADED_RESERVE_SECONDS ({config.degraded_reserve_seconds}) is longer than the hour within which "
            f"pages and mails promise to take the payment; {PROMISED_SECONDS} would do.",
        )


def _visibility(config: HoldfastSettings) -> Iterator[Problem]:
    if config.broker_visibility_seconds <= config.task_seconds:
        yield Problem(
            "E012",
            f"BROKER_VISIBILITY_SECONDS ({config.broker_visibility_seconds}) is not longer than the longest "
            f"task (TASK_SECONDS, {config.task_seconds}): it would be delivered again while it runs; "
            f"{config.task_seconds + 1} would do.",
        )


def _shutdown(config: HoldfastSettings) -> Iterator[Problem]:
    ours = config.drain_seconds + config.grace_seconds
    if ours > config.orchestrator_grace_seconds:
        yield Problem(
            "E013",
            f"DRAIN_SECONDS ({config.drain_seconds:g}) + GRACE_SECONDS ({config.grace_seconds:g}) is {ours:g} s, "
            f"longer than ORCHESTRATOR_GRACE_SECONDS ({config.orchestrator_grace_seconds:g}): requests would be "
            f"killed; {math.ceil(ours)} would do.",
        )


def _queue(config: HoldfastSettings) -> Iterator[Problem]:
    # Each process listens on a socket of its own, so what waits in one queue is served by its threads alone.
    threads = config.web_threads
    wait = budget.queue_wait_ms(config.web_backlog, config.checkout_budget_ms, threads) / 1000
    if wait > config.caller_timeout_seconds:
        fitting = int(config.caller_timeout_seconds * 1000 * threads / config.checkout_budget_ms)
        yield Problem(
            "E014",
            f"WEB_BACKLOG ({config.web_backlog}) × CHECKOUT_BUDGET_MS ({config.checkout_budget_ms}) ÷ WEB_THREADS "
            f"({threads}) is {wait:.1f} s of queue, longer than a caller waits (CALLER_TIMEOUT_SECONDS, "
            f"{config.caller_timeout_seconds:g}); {max(1, fitting)} would do.",
        )


def _rate_ages(config: HoldfastSettings) -> Iterator[Problem]:
    fresh, charge, show = (
        config.rates_fresh_seconds,
        config.rates_charge_limit_seconds,
        config.rates_show_limit_seconds,
    )
    if charge < max(1, fresh):
        yield Problem(
            "E018",
            f"RATES_CHARGE_LIMIT_SECONDS ({charge}) is shorter than a rate counts as fresh (RATES_FRESH_SECONDS, "
            f"{fresh}); {max(1, fresh)} would do.",
        )
    if show < charge:
        yield Problem(
            "E019",
            f"RATES_SHOW_LIMIT_SECONDS ({show}) is shorter than RATES_CHARGE_LIMIT_SECONDS ({charge}): prices would "
            f"be charged that may not be shown; {charge} would do.",
        )


def _traces(config: HoldfastSettings) -> Iterator[Problem]:
    if config.otlp_endpoint and not _installed("opentelemetry.exporter.otlp.proto.http.trace_exporter"):
        yield Problem(
            "E016",
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry is not installed; "
            "`pip install -r requirements/traces.txt` would do, or leaving it empty.",
        )


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it
        return False


_RULES: tuple[Callable[[HoldfastSettings], Iterator[Problem]], ...] = (
    _own_work,
    _outbox_lease,
    _currencies,
    _base_currency,
    _inline_lease,
    _outbox_pauses,
    _reserve,
    _visibility,
    _shutdown,
    _queue,
    _rate_ages,
    _traces,
)


def _most(fits: Callable[[int], bool], below: int) -> int:
    """The largest number under `below` that fits, 0 when none does."""
    return next((number for number in range(below - 1, 0, -1) if fits(number)), 0)
