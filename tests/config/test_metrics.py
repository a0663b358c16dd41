"""The series of a process say what happened in it. `python -m tests.config.test_metrics` writes their page anew."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.test import RequestFactory
from django.urls import resolve
from prometheus_client import REGISTRY, Counter, Histogram

from config import metrics
from config.metering import page_of
from config.sampling import Sampler
from orders import outbox
from orders.models import OutboxMessage
from payments import dbtime
from payments.models import MoneyCheck
from tests.neighbours import DOWN
from tests.world import DECLINED, Shopper, World

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"
HEAD = """# Metrics

Written from `config/metrics.py`; a test keeps it equal. Served when `METRICS_PORT` is set, one port for each web server
or worker with all its processes, on `METRICS_HOST` (127.0.0.1); beat has none. Figures are copied once a second, those
of the database every five seconds. A process that is killed takes what it counted in its last second with it. Gauges of
a dead process are gone at the next scrape, its counts stay. Figures of the database are the same at every port: take
their maximum, do not add them up.

| series | type | labels | what it says |
|---|---|---|---|
"""


def names(metric: Any) -> list[str]:
    """The names under which a metric is scraped."""
    if isinstance(metric, Counter):
        return [f"{metric._name}_total"]
    if isinstance(metric, Histogram):
        return [f"{metric._name}_{part}" for part in ("bucket", "count", "sum")]
    return [metric._name]


def page() -> str:
    rows = []
    for metric in metrics.every():
        name = f"`{metric._name}_total`" if isinstance(metric, Counter) else f"`{metric._name}`"
        labels = ", ".join(f"`{label}`" for label in metric._labelnames)
        rows.append(f"| {name} | {metric._type} | {labels} | {metric._documentation} |\n")
    return HEAD + "".join(rows)


def test_the_page_lists_every_series() -> None:
    assert PAGE.read_text() == page()


class Scrape:
    """The series of this process, and by how much they have grown since this was made."""

    def __init__(self) -> None:
        self._sampler = Sampler(web=True)
        self._sampler.sample()
        self._before = self._read()

    def look(self) -> None:
        self._sampler.sample()
        self._sampler.read_database()

    def _read(self) -> dict[tuple[str, str], float]:
        samples = [sample for metric in REGISTRY.collect() for sample in metric.samples]
        return {(found.name, repr(sorted(found.labels.items()))): found.value for found in samples}

    def value(self, name: str, /, **labels: str) -> float:
        return self._read()[name, repr(sorted(labels.items()))]

    def grown(self, name: str, /, **labels: str) -> float:
        return self.value(name, **labels) - self._before.get((name, repr(sorted(labels.items()))), 0)


def test_checkouts_charges_and_refusals_are_counted_by_what_became_of_them(
    world: World, shopper: Shopper, tune: Any
) -> None:
    tune(degraded_max_unpaid_orders=9)
    scrape = Scrape()
    shopper.buy()
    Shopper().buy(method=DECLINED)
    shopper.put_in_basket()
    form = shopper.checkout_form()
    shopper.submit({**form, "shown_total": 1})
    shopper.submit(form)
    shopper.submit(form)  # a double click
    world.fault(world.gateway, DOWN)
    for _ in range(12):
        Shopper().buy()
    scrape.look()
    ends = {end: scrape.grown("holdfast_checkouts_total", end=end) for end in ("paid", "declined")}
    assert ends == {"paid": 2, "declined": 1}
    assert scrape.grown("holdfast_checkouts_total", end="price_changed") == 1
    assert scrape.grown("holdfast_checkouts_total", end="repeated") == 1
    assert scrape.grown("holdfast_checkouts_total", end="awaiting_payment") == 9
    assert scrape.grown("holdfast_checkouts_total", end="unpaid_limit") == 3
    assert scrape.grown("holdfast_charges_total", outcome="Succeeded") == 2
    assert scrape.grown("holdfast_charges_total", outcome="Declined") == 1
    payment = {"name": "payment"}
    assert scrape.value("resilience_circuitbreaker_state", state="open", **payment) == 1
    assert scrape.value("resilience_circuitbreaker_state", state="closed", **payment) == 0
    calls = "resilience_circuitbreaker_calls_total"
    assert scrape.grown(calls, kind="failed", **payment) == 8
    refused = scrape.grown("resilience_rejections_total", layer="breaker", **payment)
    assert refused == scrape.grown(calls, kind="not_permitted", **payment) == 1


def test_the_figures_of_the_database_are_those_of_the_operations_room(
    world: World, shopper: Shopper, tune: Any
) -> None:
    scrape = Scrape()
    world.fault(world.gateway, DOWN)
    shopper.buy()
    MoneyCheck.objects.create(subject="pi_x", reason="nobody's money", opened_at=dbtime.read())
    scrape.look()
    assert scrape.value("holdfast_outbox_pending", destination="payment") == 1
    assert scrape.value("holdfast_unpaid_orders") == 1
    assert scrape.value("holdfast_unpaid_total_minor") == world.order().base_total_minor
    assert scrape.value("holdfast_money_checks_open") == 1
    assert scrape.value("holdfast_mode", mode="normal") == 1
    assert scrape.value("holdfast_rate_stale", currency="USD") == 0
    with world.later(7200):
        OutboxMessage.objects.filter(kind=outbox.CHARGE).update(status="DEAD")
        scrape.look()
    assert scrape.value("holdfast_outbox_dead_letters", destination="payment") == 1
    assert scrape.value("holdfast_rate_stale", currency="USD") == 1
    assert scrape.value("holdfast_rate_age_seconds", currency="USD") > 7000
    OutboxMessage.objects.filter(kind=outbox.CHARGE).update(status="PENDING")
    MoneyCheck.objects.all().delete()


def test_a_page_is_counted_by_its_name_in_our_table_and_never_by_what_was_asked_for() -> None:
    seen = set()
    for path in ("/orders/secret-token/", "/admin/orders/order/", "/ops/", "/health/dependencies/"):
        request = RequestFactory().get(path)
        request.resolver_match = resolve(path)
        seen.add(page_of(request))
    assert seen == {"order", "admin", "ops", "dependencies"}
    assert page_of(RequestFactory().get("/wp-login.php")) == "none"


@pytest.mark.parametrize("metric", metrics.every(), ids=lambda metric: metric._name)
def test_labels_are_few_and_named_in_the_code(metric: Any) -> None:
    assert len(metric._labelnames) <= 3
    assert re.fullmatch(r"(resilience|holdfast)_[a-z_]+", metric._name)


if __name__ == "__main__":
    PAGE.write_text(page())
