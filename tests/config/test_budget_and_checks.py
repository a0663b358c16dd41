"""The numbers of the environment: what they mean, and that numbers which do not add up stop everything."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError, SystemCheckError
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from config import shedding
from config.checks import problems
from config.environment import HoldfastSettings, Reader, read_holdfast
from orders import queries
from orders.models import RateRecord
from payments import mode
from payments.dependencies import build_chain, build_session, patient

ROOT = Path(__file__).resolve().parent.parent.parent
NEIGHBOURS = dict.fromkeys(("PAYMENT_URL", "CATALOG_URL", "RATES_URL"), "http://127.0.0.1:9")

# 5 s timeout, 3 attempts, pauses from 1 s doubling, 40 requests per second, 200 threads, no bulkhead.
BAD_EXAMPLE = {
    "CHECKOUT_BUDGET_MS": "30100",
    "INLINE_LEASE_SECONDS": "31",
    "PAYMENT_ATTEMPTS": "3",
    "PAYMENT_BACKOFF_MS": "1000",
    "PAYMENT_BULKHEAD": "1000",
    "EXPECTED_RPS": "40",
    "WEB_THREADS": "200",
    "WEB_WORKERS": "1",
}

BROKEN = [
    ("E001", {"OWN_WORK_MS": "500"}, "OWN_WORK_MS (500)", "OWN_WORK_MS", "400"),
    ("E002", {"OUTBOX_LEASE_SECONDS": "15"}, "OUTBOX_LEASE_SECONDS (15)", "OUTBOX_LEASE_SECONDS", "16"),
    ("E003", {"BASE_CURRENCY": "GBP"}, "BASE_CURRENCY (GBP)", "CURRENCIES", "GBP,EUR,USD,JPY,KWD"),
    (
        "E004",
        {"INLINE_LEASE_SECONDS": "1", "CHECKOUT_BUDGET_MS": "1000"},
        "(1000 ms)",
        "INLINE_LEASE_SECONDS",
        "2",
    ),
    (
        "E005",
        {"RATES_BREAKER_MIN_CALLS": "11"},
        "RATES_BREAKER_MIN_CALLS (11)",
        "RATES_BREAKER_MIN_CALLS",
        "10",
    ),
    ("E006", {"CHECKOUT_BUDGET_MS": "200"}, "leaves 20 ms for catalog", "CHECKOUT_BUDGET_MS", "235"),
    (
        "E007",
        {"PAYMENT_BREAKER_SLOW_CALL_MS": "240"},
        "PAYMENT_BREAKER_SLOW_CALL_MS (240)",
        "PAYMENT_BREAKER_SLOW_CALL_MS",
        "239",
    ),
    (
        "E007",
        {"PAYMENT_BREAKER_SLOW_CALL_MS": "200", "WORKER_BUDGET_MS": "150"},
        "the timeout of a worker's call (150 ms)",
        "PAYMENT_BREAKER_SLOW_CALL_MS",
        "149",
    ),
    (
        "E008",
        {"PAYMENT_BREAKER_MIN_CALLS": "100", "PAYMENT_BREAKER_WINDOW": "100", "EXPECTED_RPS": "2"},
        "PAYMENT_BREAKER_MIN_CALLS (100) come together in 99.2 s",
        "PAYMENT_BREAKER_MIN_CALLS",
        "60",
    ),
    ("E009", {"CATALOG_ATTEMPTS": "6"}, "CATALOG_ATTEMPTS (6)", "CATALOG_ATTEMPTS", "5"),
    ("E009", {"CATALOG_BACKOFF_MS": "0"}, "CATALOG_BACKOFF_MS (0)", "CATALOG_BACKOFF_MS", "1"),
    (
        "E010",
        {"OUTBOX_RETRY_MIN_SECONDS": "60"},
        "OUTBOX_RETRY_MIN_SECONDS (60)",
        "OUTBOX_RETRY_MAX_SECONDS",
        "120",
    ),
    ("E011", {"REPLAY_RATE": "2"}, "REPLAY_RATE (2/s", "DEGRADED_RESERVE_SECONDS", "5010"),
    (
        "E012",
        {"BROKER_VISIBILITY_SECONDS": "90"},
        "BROKER_VISIBILITY_SECONDS (90)",
        "BROKER_VISIBILITY_SECONDS",
        "91",
    ),
    (
        "E013",
        {"GRACE_SECONDS": "26"},
        "DRAIN_SECONDS (5) + GRACE_SECONDS (26)",
        "ORCHESTRATOR_GRACE_SECONDS",
        "31",
    ),
    ("E014", {"WEB_BACKLOG": "512"}, "WEB_BACKLOG (512)", "WEB_BACKLOG", "320"),
    (
        "E018",
        {"RATES_FRESH_SECONDS": "90000"},
        "RATES_CHARGE_LIMIT_SECONDS (86400)",
        "RATES_CHARGE_LIMIT_SECONDS",
        "90000",
    ),
    (
        "E019",
        {"RATES_SHOW_LIMIT_SECONDS": "600"},
        "RATES_SHOW_LIMIT_SECONDS (600)",
        "RATES_SHOW_LIMIT_SECONDS",
        "86400",
    ),
    ("E017", {"CURRENCIES": "EUR,XXX,EUR"}, "CURRENCIES (EUR,XXX,EUR)", "CURRENCIES", "EUR"),
    (
        "E015",
        {"PAYMENT_BULKHEAD": "100", "EXPECTED_RPS": "200"},
        "hold 48 threads (200 rps × 0.24 s)",
        "PAYMENT_BULKHEAD",
        "15",
    ),
    ("W001", {"PAYMENT_RATE_LIMIT": "1"}, "PAYMENT_RATE_LIMIT (1 per 100 ms)", "PAYMENT_RATE_LIMIT", "2"),
    ("W002", {"RATES_RETRY_BUDGET": "0"}, "RATES_RETRY_BUDGET (0)", "RATES_RETRY_BUDGET", "0.1"),
    (
        "W003",
        {"DEGRADED_RESERVE_SECONDS": "7200"},
        "DEGRADED_RESERVE_SECONDS (7200)",
        "DEGRADED_RESERVE_SECONDS",
        "3600",
    ),
]


def read(**environment: str) -> HoldfastSettings:
    env = Reader({**NEIGHBOURS, **environment})
    config = read_holdfast(env)
    env.finish()
    return config


def budget_command(settings: Any, config: HoldfastSettings, *arguments: str) -> tuple[str, int]:
    settings.HOLDFAST = config
    out = StringIO()
    try:
        call_command("budget", *arguments, stdout=out)
    except SystemExit as end:
        return out.getvalue(), int(end.code or 0)
    return out.getvalue(), 0


def test_the_defaults_add_up_without_a_single_remark() -> None:
    assert problems(read()) == []


@pytest.mark.parametrize(
    ("number", "environment", "words", "setting", "nearest"),
    BROKEN,
    ids=[f"{row[0]}-{'-'.join(row[1])}" for row in BROKEN],
)
def test_a_broken_configuration_stops_check_with_its_number_and_a_sentence(
    settings: Any, number: str, environment: dict[str, str], words: str, setting: str, nearest: str
) -> None:
    settings.HOLDFAST = read(**environment)
    mine = [found for found in problems(settings.HOLDFAST) if found.number == number]
    assert words in mine[0].text
    assert re.search(rf"; \S*{re.escape(nearest)} would do\.$", mine[0].text), mine[0].text
    errors = StringIO()
    if number.startswith("E"):
        with pytest.raises(SystemCheckError, match=rf"holdfast\.{number}"):
            call_command("check", stderr=errors)
    else:
        call_command("check", stderr=errors)
        assert f"holdfast.{number}" in errors.getvalue()
    mended = read(**{**environment, setting: nearest})
    assert number not in {found.number for found in problems(mended)}


def _bounds() -> list[tuple[str, str]]:
    """Every number of the environment with the smallest and the largest value that it may have."""
    env = Reader(NEIGHBOURS)
    read_holdfast(env)
    found = []
    for asked in env.asked:
        if bounds := re.search(r"(?:from ([\d.]+)|([\d.]+) to ([\d.]+))$", asked.form):
            least, low, high = bounds.groups()
            # A bound that nobody would reach is none in the reference.
            found += [(asked.name, least or low), (asked.name, high or "1000000000")]
    return found


@pytest.mark.parametrize(("name", "value"), _bounds())
def test_a_number_within_its_bounds_stops_the_start_or_everything_can_be_made_of_it(
    settings: Any, name: str, value: str
) -> None:
    settings.HOLDFAST = config = read(**{name: value})
    if any(found.number.startswith("E") for found in problems(config)):
        return
    mode.control_policy()
    shedding.shedder.__wrapped__()
    now = datetime.now(UTC)
    queries.rate_of_record(
        RateRecord(base="EUR", quote="USD", value=Decimal(1), provider_date=now.date(), fetched_at=now), now
    )
    for dependency, budget in (
        *((config.dependencies[name], budget) for name, budget in config.budgets.items()),
        (config.payment, patient(config.worker_budget_ms)),
    ):
        build_session(dependency, budget)
        build_chain("any", dependency, budget)
    for field, number in vars(config).items():
        if field.endswith("_seconds"):
            now + timedelta(seconds=number)


def test_every_number_has_a_configuration_that_shows_it() -> None:
    source = (ROOT / "config" / "checks.py").read_text()
    numbers = set(re.findall(r'"([EW]\d{3})"', source))
    # Shown in tests/config/test_traces.py and, for those of `check --deploy`, in tests/pages/test_production.py.
    assert numbers == {row[0] for row in BROKEN} | {"E016", "W004", "W005", "W006", "W007"}
    page = (ROOT / "docs" / "reference" / "budget-and-checks.md").read_text()
    assert numbers == set(re.findall(r"^\| `holdfast\.([EW]\d{3})`", page, re.MULTILINE))


def test_the_table_of_the_defaults_is_that_of_the_specification(settings: Any) -> None:
    text, code = budget_command(settings, read(), "--json")
    assert code == 0
    whole = json.loads(text)
    assert whole["verdict"] == "good"
    payment, catalog, rates = whole["table"]["rows"]
    assert (payment["share_ms"], payment["call_ms"], payment["connect_ms"], payment["attempts"]) == (
        240,
        240,
        150,
        1,
    )
    assert (catalog["share_ms"], catalog["call_ms"], catalog["pauses_ms"]) == (80, 30, [20])
    assert (payment["threads_held"], catalog["threads_held"]) == (9.6, 3.2)
    assert whole["table"]["worst_case_ms"] == 500
    assert payment["seconds_until_open"] == pytest.approx(9 / 20 + 0.24)
    assert rates["requests_per_call"] == 1.1
    text, _ = budget_command(settings, read())
    assert "1 × 240 ms" in text
    assert "Verdict: it adds up." in text


def test_the_documentation_shows_the_table_that_is_printed(settings: Any) -> None:
    text, _ = budget_command(settings, read())
    page = (ROOT / "docs" / "reference" / "budget-and-checks.md").read_text().splitlines()
    for line in text.splitlines()[:12]:
        assert line.rstrip() in page


def test_eighteen_seconds_a_call_hold_720_of_200_threads_and_the_verdict_says_so(settings: Any) -> None:
    text, code = budget_command(settings, read(**BAD_EXAMPLE))
    assert code == 1
    assert "3 × 5000 ms" in text
    assert "1000 ms + 2000 ms" in text
    assert "18000 ms" in text
    assert "720" in text
    assert "hold 720 threads (40 rps × 18 s), all of WEB_THREADS (200)" in text
    assert "Verdict: it does not add up." in text


def test_with_metrics_the_budget_tells_which_share_of_healthy_calls_it_would_cut_off(
    settings: Any, tmp_path: Path
) -> None:
    registry = CollectorRegistry()
    took = Histogram(
        "resilience_circuitbreaker_calls_seconds",
        "",
        ["name", "kind"],
        registry=registry,
        buckets=(0.2, 0.3, 1),
    )
    for seconds in [0.1] * 90 + [0.25] * 8 + [0.9, 5]:
        took.labels("payment", "successful").observe(seconds)
    took.labels("payment", "failed").observe(9)
    for _ in range(4):
        took.labels("catalog", "successful").observe(5)
    scrape = tmp_path / "metrics"
    scrape.write_bytes(generate_latest(registry))
    text, _ = budget_command(settings, read(), "--metrics", str(scrape))
    # 240 ms: the 90 below 200 ms and four tenths of the eight up to 300 ms are in time.
    assert "payment: the timeout would cut off 6.80% of the calls that succeeded" in text
    assert "catalog: the timeout would cut off 100.00% of" in text
    assert "rates: the metrics know of no successful call" in text
    scrape.write_text("<html>not metrics</html>")
    with pytest.raises(CommandError, match="cannot be read as metrics"):
        budget_command(settings, read(), "--metrics", str(scrape))


def test_a_budget_that_leaves_nothing_still_gets_its_sentence(settings: Any) -> None:
    text, code = budget_command(settings, read(OWN_WORK_MS="600"), "--json")
    assert code == 1
    found = json.loads(text)
    assert found["table"] is None
    assert found["problems"][0]["id"] == "holdfast.E001"


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "gunicorn", "-c", "config/gunicorn.py", "config.wsgi"],
        ["-c", "import config.wsgi"],
        ["-m", "celery", "-A", "config.celery", "worker"],
        ["-m", "celery", "-A", "config.celery", "beat", "-s", "{home}/beat"],
        ["manage.py", "check"],
        ["manage.py", "migrate"],
    ],
    ids=["gunicorn", "another WSGI server", "worker", "beat", "check", "migrate"],
)
def test_numbers_that_do_not_add_up_stop_web_worker_beat_and_commands(
    command: list[str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, *(part.replace("{home}", str(tmp_path)) for part in command)],
        cwd=ROOT,
        env={**os.environ, "OWN_WORK_MS": "20000", "PORT": "0"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "OWN_WORK_MS (20000) leaves nothing of CHECKOUT_BUDGET_MS (10000)" in said
    assert "holdfast.E001" in said
    assert "Booting worker" not in said
