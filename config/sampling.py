"""The thread that copies the figures of a process into its metrics once a second.

No request pays for that, and a hung database only makes the figures of the database stand still. A process that
is killed takes what it counted in its last second with it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

from django.conf import settings
from django.db import connection
from prometheus_client import Counter

from config import metrics, valkey
from config.shedding import shedder
from orders import clients as order_clients
from orders import outbox, queries, tally
from orders.ops import room
from orders.pricing import Freshness
from payments import clients as payment_clients
from payments import dbtime, mode
from payments.dependencies import observe_calls
from payments.states import EffectiveMode
from payments.storage import DATABASE_ERRORS, brief
from resilience.breaker_policy import State
from resilience.chain import Chain, ChainSnapshot
from resilience.shedding import Priority

logger = logging.getLogger(__name__)
_SECONDS = 1.0
_DATABASE_EVERY = 5  # turns
_READ_SECONDS = 2.0
_KINDS = {"success": "successful", "failure": "failed"}


class Sampler(threading.Thread):
    """Copies until the process ends. `web`: this process has a door and serves shoppers."""

    def __init__(self, *, web: bool) -> None:
        super().__init__(name="metrics", daemon=True)
        self._web = web
        self._seen: dict[tuple[object, ...], int] = {}
        self._silent = False

    def run(self) -> None:
        turn, pause = 0, threading.Event()
        while not pause.wait(_SECONDS):
            try:
                self.sample()
                if turn % _DATABASE_EVERY == 0:
                    self.read_database()
            except Exception:
                logger.exception("metrics not taken")
            turn += 1

    def sample(self) -> None:
        """What the process knows by itself."""
        for chain in _chains(self._web):
            self._chain(chain.snapshot())
        for end, count in tally.CHECKOUTS.items():
            self._count(metrics.CHECKOUTS, count.value, end.value)
        for outcome, count in tally.CHARGES.items():
            self._count(metrics.CHARGES, count.value, outcome.__name__)
        if (client := valkey.built()) is not None:
            self._count(metrics.CONNECTIONS_MADE, client.connections_made.value)
        if self._web:
            door = shedder()
            metrics.IN_FLIGHT.set(door.in_flight)
            metrics.IN_FLIGHT_LIMIT.set(door.limit)
            for priority in Priority:
                self._count(metrics.SHED, door.shed[priority].value, priority.name.lower())

    def _count(self, counter: Counter, total: int, *labels: str) -> None:
        """Ours only ever grow; what they grew by is counted. The first look makes the series, at 0."""
        key = (counter, *labels)
        child = counter.labels(*labels) if labels else counter
        child.inc(max(0, total - self._seen.get(key, 0)))
        self._seen[key] = total

    def _chain(self, found: ChainSnapshot) -> None:
        name, breaker = found.name, found.breaker
        for state in State:
            metrics.STATE.labels(name, state.value).set(breaker.state is state)
        metrics.FAILURE_RATE.labels(name).set(-1 if breaker.failure_rate is None else breaker.failure_rate)
        metrics.SLOW_RATE.labels(name).set(-1 if breaker.slow_rate is None else breaker.slow_rate)
        kinds = {"successful": breaker.succeeded, "failed": breaker.failed, "ignored": breaker.ignored}
        for kind, total in {**kinds, "not_permitted": found.rejected_by_breaker}.items():
            self._count(metrics.CALLS, total, name, kind)
        for outcome in ("successful", "failed"):
            for how in ("without_retry", "with_retry"):
                kind = f"{outcome}_{how}"
                self._count(metrics.RETRIES, getattr(found, kind), name, kind)
        for layer in ("breaker", "limiter", "bulkhead"):
            self._count(metrics.REJECTED, getattr(found, f"rejected_by_{layer}"), name, layer)
        self._count(metrics.REJECTED, found.rejected_for_time, name, "time")
        self._count(metrics.REFUSED, found.refused, name)
        if found.bulkhead_available is not None:
            metrics.PLACES.labels(name).set(found.bulkhead_available)
        if found.limiter_available is not None:
            metrics.PERMITS.labels(name).set(found.limiter_available)

    def read_database(self) -> None:
        """A dozen small queries in one transaction; an error leaves the figures as they were."""
        try:
            with brief(_READ_SECONDS):
                _backlog()
                _exposure()
                _rates()
            metrics.SAMPLED.set(datetime.now(UTC).timestamp())
            self._silent = False
        except DATABASE_ERRORS as error:
            if not self._silent:  # one line an outage
                logger.warning("metrics of the database stand still", extra={"error": type(error).__name__})
            self._silent = True
        finally:
            connection.close()


def _backlog() -> None:
    now = mode.current()
    for destination, figures in outbox.stats(held=now.held).items():
        metrics.PENDING.labels(destination).set(figures.pending)
        metrics.OLDEST.labels(destination).set(figures.oldest_seconds)
        metrics.LATE.labels(destination).set(figures.late_seconds)
        metrics.DEAD.labels(destination).set(figures.dead)
    for one in EffectiveMode:
        metrics.MODE.labels(one.value.lower()).set(one == now.effective)


def _exposure() -> None:
    found = room.exposure()
    metrics.UNPAID_ORDERS.set(found.orders)
    metrics.UNPAID_ORDERS_LIMIT.set(found.orders_limit)
    metrics.UNPAID_TOTAL.set(found.total.minor)
    metrics.UNPAID_TOTAL_LIMIT.set(found.total_limit.minor)
    worries = room.worries()
    metrics.RESERVES_ENDING.set(worries.reserves_ending)
    metrics.MONEY_CHECKS.set(worries.money_checks)
    metrics.UNKNOWN_PAYMENTS.set(worries.unknown_payments)


def _rates() -> None:
    now = dbtime.read()
    for offer in queries.currency_offers():
        if offer.code == settings.HOLDFAST.base_currency:
            continue
        age = (now - offer.rate.fetched_at).total_seconds() if offer.rate else float("inf")
        fresh = offer.rate is not None and offer.rate.freshness is Freshness.FRESH
        metrics.RATE_AGE.labels(offer.code).set(age)
        metrics.RATE_STALE.labels(offer.code).set(not fresh)
        metrics.CURRENCY_OFFERED.labels(offer.code).set(offer.offered)


def _chains(web: bool) -> Iterator[Chain]:
    gateway = payment_clients.inline_gateway() if web else payment_clients.built_background_gateway()
    if gateway is not None:
        yield gateway.chain
    yield order_clients.catalog().chain
    yield order_clients.rates().chain
    if (client := valkey.built()) is not None:
        yield client.chain


def attempt(name: str, outcome: str, seconds: float) -> None:
    """Notes one attempt of a chain."""
    metrics.SECONDS.labels(name, _KINDS.get(outcome, outcome)).observe(seconds)


def start(*, web: bool) -> None:
    """Begins to copy. Call after the fork, once, before the first call to a neighbour."""
    observe_calls(attempt)
    Sampler(web=web).start()
