"""Writes docs/reference/settings.md and commands.md from the code: `python -m config.reference [DIRECTORY]`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from config.environment import Asked

ROOT = Path(__file__).resolve().parent.parent
_PREFIXES = ("PAYMENT_", "CATALOG_", "RATES_")
_NOWHERE = "http://127.0.0.1:9"
_LEAST = {
    # What must be set, with values that no page shows.
    "SECRET_KEY": "x" * 50,
    "ALLOWED_HOSTS": "shop.example",
    "DATABASE_URL": "postgresql://127.0.0.1:9/none",
    "BROKER_URL": "redis://127.0.0.1:9/0",
    "PAYMENT_API_KEY": "none",
    "PAYMENT_WEBHOOK_SECRET": "none",
    **{f"{prefix}URL": _NOWHERE for prefix in _PREFIXES},
    "DJANGO_SETTINGS_MODULE": "config.settings",
}
_DEFAULTS = {
    "HOLDFAST_HOME": ".holdfast",
    "CACHE_URL": "`BROKER_URL`",
    "PROXY_COUNT": "1; 0 outside production",
    "ALLOWED_HOSTS": "must be set",
    "PAYMENT_WEBHOOK_SECRET": "must be set; may be empty outside production",
    "DATABASE_POOL_MIN": "half of `WEB_THREADS` in a web server, else 0",
}
_PLAIN = {
    "json": "for machines",
    "dry_run": "only say what would be done",
    "action": "what to do",
    "ids": "which ones",
}
_PLAIN |= {
    "setting": "what to do",
    "id": "which one",
    "clear": "forget it",
    "host": "the address to listen on",
}

MEANINGS: Mapping[str, Mapping[str, str]] = {
    "The environment": {
        "HOLDFAST_ENV": "`production`, `demo` or `test`",
        "SECRET_KEY": "signs sessions and tokens; at least 50 characters in production",
        "ALLOWED_HOSTS": "the shop's names",
        "CSRF_TRUSTED_ORIGINS": "origins besides its own from which forms may come",
        "SITE_URL": "the address in mails",
        "PROXY_COUNT": "how many of our proxies add to `X-Forwarded-For`",
        "HOLDFAST_HOME": "where the demo, its mail and a worker's sign of life are kept",
        "DATABASE_URL": "PostgreSQL",
        "DATABASE_POOL_MIN": "connections that a process keeps ready",
        "BROKER_URL": "Redis or Valkey, for Celery",
        "CACHE_URL": "Redis or Valkey, for the limits on guessing that hold for all web processes together",
        "EMAIL_HOST": "mail server; without one, mail is written as files under `HOLDFAST_HOME`",
        "EMAIL_PORT": "its port",
        "EMAIL_HOST_USER": "its user",
        "EMAIL_HOST_PASSWORD": "its password",
        "EMAIL_USE_TLS": "1: STARTTLS, usually at port 587",
        "EMAIL_USE_SSL": "1: TLS from the first byte, usually at port 465",
        "DEFAULT_FROM_EMAIL": "who the shop's mail is from",
        "METRICS_PORT": "where Prometheus reads this process; 0: nowhere",
        "METRICS_HOST": "the address of that port",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "the collector that [traces](../how-to/traces.md) are sent to; none: off",
    },
    "The budget": {
        "CHECKOUT_BUDGET_MS": "within which a checkout is answered",
        "OWN_WORK_MS": "what the shop's own work takes of it",
        "WORKER_BUDGET_MS": "the same for one call of a worker",
        "EXPECTED_RPS": "checkouts a second that the checks reckon with",
        "CALLER_TIMEOUT_SECONDS": "how long whoever calls the shop waits",
        "NOTICE_OUTAGE_SECONDS": "an outage so long must open a breaker",
    },
    "Each neighbour: `PAYMENT_`, `CATALOG_`, `RATES_`": {
        "URL": "its address",
        "SHARE": "its part of the budget, against the others'",
        "ATTEMPTS": "tries within its part, the first included",
        "BACKOFF_MS": "bound of the first pause between tries",
        "RETRY_BUDGET": "repeats for each first try, over time",
        "BREAKER_WINDOW": "calls that the breaker remembers",
        "BREAKER_MIN_CALLS": "below so many it has no opinion",
        "BREAKER_FAILURE_RATE": "percent of failures that open it",
        "BREAKER_SLOW_CALL_MS": "a longer call is slow; 0: 0.8 of the timeout",
        "BREAKER_SLOW_RATE": "percent of slow calls that open it",
        "BREAKER_OPEN_SECONDS": "how long it stays open, and up to a tenth more",
        "BREAKER_HALF_OPEN_CALLS": "probes at a time, and verdicts needed",
        "BREAKER_HALF_OPEN_MAX_SECONDS": "the lease of a probe",
        "BULKHEAD": "calls at a time in a process",
        "RATE_LIMIT": "calls in any period, in a process",
        "RATE_PERIOD_MS": "that period",
    },
    "The payment gateway": {
        "PAYMENT_API_KEY": "the secret key",
        "PAYMENT_WEBHOOK_SECRET": "what its webhooks are signed with",
        "PAYMENT_KEY_SECONDS": "how long it remembers an idempotency key, at least",
    },
    "Orders": {
        "RESERVE_SECONDS": "how long goods are kept for an order whose payment is unknown",
        "ACTION_REQUIRED_SECONDS": "the same while the shopper's bank has a question",
        "INLINE_LEASE_SECONDS": "how long a checkout holds its charge before a worker goes on",
        "CATALOG_SNAPSHOT_SECONDS": "a basket's own prices may be so old when the catalog is down",
    },
    "Degraded mode": {
        "DEGRADED_AFTER_OPEN_SECONDS": "breakers open for so long turn it on",
        "DEGRADED_QUORUM": "on so large a part of the web processes",
        "DEGRADED_MIN_SECONDS": "no second automatic entry sooner",
        "RECOVER_AFTER_CLOSED_SECONDS": "workers' payments succeed for so long: recovery",
        "DEGRADED_RESERVE_SECONDS": "how long goods are kept for an order that is to be paid later",
        "DEGRADED_MAX_ORDER_TOTAL": "the largest order accepted unpaid, in whole units of the base currency",
        "DEGRADED_MAX_UNPAID_ORDERS": "unpaid orders at a time",
        "DEGRADED_MAX_UNPAID_TOTAL": "what they may be worth together, in whole units of the base currency",
        "REPLAY_RATE": "deferred charges a second, in the whole cluster",
        "REPLAY_RAMP_SECONDS": "reached so slowly",
    },
    "Exchange rates": {
        "BASE_CURRENCY": "the catalog's currency",
        "CURRENCIES": "what the shop offers",
        "RATES_REFRESH_SECONDS": "how often they are fetched",
        "RATES_FRESH_SECONDS": "older ones are called stale",
        "RATES_PROVIDER_MAX_DAYS": "so is a provider's date older than that",
        "RATES_SHOW_LIMIT_SECONDS": "how long after the last good fetch prices are shown",
        "RATES_CHARGE_LIMIT_SECONDS": "and charged",
        "RATES_MAX_JUMP": "a larger change is rejected as an error",
    },
    "Outbox and workers": {
        "OUTBOX_LEASE_SECONDS": "how long a worker holds a message",
        "OUTBOX_MAX_ATTEMPTS": "tries before it is a dead letter",
        "OUTBOX_RETRY_MIN_SECONDS": "the shortest pause between tries",
        "OUTBOX_RETRY_MAX_SECONDS": "the longest",
        "OUTBOX_KEEP_SECONDS": "how long delivered messages are kept",
        "VOID_LOOK_SECONDS": "how often a charge to be undone is looked up",
        "ACTION_POLL_SECONDS": "how often a payment that waits for the shopper's bank is",
        "TICK_SECONDS": "how often beat wakes the workers",
        "TASK_SECONDS": "the longest task",
        "BROKER_VISIBILITY_SECONDS": "after which the broker hands a task out again",
        "BROKER_LOST_SECONDS": "a worker or beat that is not well for so long ends",
    },
    "Web servers": {
        "WEB_WORKERS": "processes",
        "WEB_THREADS": "requests in work in each",
        "SPARE_THREADS": "threads more, for probes and refusals",
        "WEB_BACKLOG": "connections that may wait for each",
        "SHED_CHECKOUT_SHARE": "the part of the places that checkouts may take",
        "SHED_BROWSING_SHARE": "and browsing",
        "QUEUE_LIMIT_MS": "what has waited longer in front of us is refused",
        "RETRY_AFTER_SECONDS": "what the refused are told",
        "DRAIN_SECONDS": "how long a server that is told to stop goes on serving",
        "GRACE_SECONDS": "how long what was begun may take then",
        "ORCHESTRATOR_GRACE_SECONDS": "how long whoever stops it waits",
    },
}
"""What each variable means, by the page's chapters."""


def settings_page(asked: list[Asked]) -> str:
    """The page of all variables that were `asked` for. Raises KeyError for one that it has no meaning for."""
    found = {one.name: one for one in asked}
    lines = [
        "# Settings",
        "",
        "Every environment variable that the shop reads, with its default. Written by `python -m config.reference` from"
        " `config/environment.py` and `config/settings.py`; a test keeps it current. Numbers that do not fit together"
        " stop the start with a sentence: [budget and checks](budget-and-checks.md).",
    ]
    told: set[str] = set()
    for chapter, meanings in MEANINGS.items():
        each = chapter.startswith("Each")
        lines += ["", f"## {chapter}", "", "| variable | default | meaning | form |", "|---|---|---|---|"]
        for name, meaning in meanings.items():
            names = [prefix + name for prefix in _PREFIXES] if each else [name]
            told.update(names)
            shown = f"`…_{name}`" if each else f"`{name}`"
            lines.append(
                f"| {shown} | {_defaults([found[n] for n in names])} | {meaning} | {found[names[0]].form} |"
            )
    if unknown := sorted(set(found) - told):
        raise KeyError(f"no meaning is written for {', '.join(unknown)}")
    return "\n".join([*lines, ""])


def _defaults(asked: list[Asked]) -> str:
    texts = list(dict.fromkeys(_default(one) for one in asked))
    return ", ".join(texts)


def _default(one: Asked) -> str:
    if one.name in _DEFAULTS:
        return _DEFAULTS[one.name]
    return "must be set" if one.default is None else f"`{one.default}`" if one.default else "none"


def commands_page() -> str:
    """The page of `manage.py`'s own commands, from their parsers."""
    lines = [
        "# Commands",
        "",
        "The shop's own commands of `manage.py`; `manage.py COMMAND --help` says the same. Written by"
        " `python -m config.reference`. `manage.py lab` needs no settings: [the lab](../explanation/lab/README.md).",
    ]
    for name, parser in sorted(_parsers()):
        lines += ["", f"## {name}", "", (parser.description or "").strip(), ""]
        if arguments := list(_arguments(parser)):
            lines += ["| argument | meaning |", "|---|---|", *arguments]
    return "\n".join([*lines, ""])


def _parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    from django.core.management import get_commands, load_command_class

    from sandbox.lab.__main__ import parser as lab

    for name, app in get_commands().items():
        if app in ("config", "orders", "payments", "sandbox"):
            yield name, load_command_class(app, name).create_parser("manage.py", name)
    yield "lab", lab()


def _arguments(parser: argparse.ArgumentParser, before: str = "") -> Iterator[str]:
    from django.core.management.base import BaseCommand

    common = {
        option for action in BaseCommand().create_parser("", "")._actions for option in action.option_strings
    }
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, inner in action.choices.items():
                yield f"| `{before}{name}` | {helps.get(name, '')} |"
                yield from _arguments(inner, f"{before}{name} ")
        elif not set(action.option_strings) & common and "--help" not in action.option_strings:
            words = " ".join([*action.option_strings[-1:], *_value(action)]).replace("|", "\\|")
            yield f"| `{before}{words}` | {action.help or _PLAIN.get(action.dest, '')} |"


def _value(action: argparse.Action) -> list[str]:
    if action.nargs == 0:
        return []
    if action.choices:
        return ["|".join(str(choice) for choice in action.choices)]
    return [str(action.metavar or action.dest).upper()]


def main() -> None:
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "reference"
    os.environ.clear()  # the page shows the defaults of nobody's machine
    os.environ.update(_LEAST, HOLDFAST_ENV="demo")
    import django

    django.setup()
    (where / "commands.md").write_text(commands_page(), encoding="utf-8")
    from config import settings

    (where / "settings.md").write_text(settings_page(settings.ASKED), encoding="utf-8")


if __name__ == "__main__":
    main()
