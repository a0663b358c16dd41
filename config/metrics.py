"""The metrics of one process, under resilience4j's names where they exist. docs/reference/metrics.md lists them.

A thread copies the figures once a second, so that no request pays for them and a hung database only makes the
figures of the database stand still. Import after the fork.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

from django.db import DatabaseError, InterfaceError, connection
from prometheus_client import Counter, Gauge
from psycopg_pool import PoolTimeout

from config.shedding import shedder
from orders import clients as order_clients
from orders import outbox
from payments import clients as payment_clients
from payments import mode
from payments.states import EffectiveMode
from resilience.breaker_policy import State
from resilience.chain import Chain, ChainSnapshot
from resilience.shedding import Priority

logger = logging.getLogger(__name__)
_SECONDS = 1.0
_DATABASE_EVERY = 5  # turns

# A breaker belongs to its process: the worst of the living ones is shown.
STATE = Gauge(
    "resilience_circuitbreaker_state", "1: a process is so", ["name", "state"], multiprocess_mode="livemax"
)
RATE = Gauge(
    "resilience_circuitbreaker_failure_rate", "Percent; -1: unknown", ["name"], multiprocess_mode="livemax"
)
CALLS = Counter("resilience_circuitbreaker_calls", "Calls by what came of them", ["name", "kind"])
RETRIES = Counter(
    "resilience_retry_calls", "Calls by their end and by whether they were repeated", ["name", "kind"]
)
REJECTED = Counter("resilience_rejections", "Every refusal of a layer of ours", ["name", "layer"])
REFUSED = Counter("resilience_final_refusals", "Calls whose caller was finally told: not sent", ["name"])
PLACES = Gauge(
    "resilience_bulkhead_available_concurrent_calls", "Free places", ["name"], multiprocess_mode="livemin"
)
PERMITS = Gauge(
    "resilience_ratelimiter_available_permissions", "Free permissions", ["name"], multiprocess_mode="livemin"
)
SHED = Counter("holdfast_shed_requests", "Requests refused at the door", ["priority"])
IN_FLIGHT = Gauge("holdfast_requests_in_flight", "Requests in work", multiprocess_mode="livesum")
PENDING = Gauge(
    "holdfast_outbox_pending", "Messages waiting", ["destination"], multiprocess_mode="mostrecent"
)
OLDEST = Gauge(
    "holdfast_outbox_oldest_age_seconds",
    "Age of the oldest waiting",
    ["destination"],
    multiprocess_mode="mostrecent",
)
DEAD = Gauge("holdfast_outbox_dead_letters", "Dead letters", ["destination"], multiprocess_mode="mostrecent")
MODE = Gauge("holdfast_mode", "1: orders are taken so", ["mode"], multiprocess_mode="mostrecent")
SAMPLED = Gauge(
    "holdfast_database_sampled_timestamp_seconds",
    "When the database was last read",
    multiprocess_mode="mostrecent",
)


class Sampler(threading.Thread):
    """Copies the figures until the process ends. `web`: this process has a door."""

    def __init__(self, *, web: bool) -> None:
        super().__init__(name="metrics", daemon=True)
        self._web = web
        self._seen: dict[tuple[object, ...], int] = {}
        self._silent = False

    def run(self) -> None:
        turn, pause = 0, threading.Event()
        while not pause.wait(_SECONDS):
            self.sample()
            if turn % _DATABASE_EVERY == 0:
                self._read_database()
            turn += 1

    def sample(self) -> None:
        """What the process knows by itself."""
        for chain in _chains(self._web):
            self._chain(chain.snapshot())
        if self._web:
            IN_FLIGHT.set(shedder().in_flight)
            for priority in Priority:
                self._count(SHED, shedder().shed[priority].value, priority.name.lower())

    def _count(self, counter: Counter, total: int, *labels: str) -> None:
        """Ours only ever grow; what they grew by is counted. The first look makes the series, at 0."""
        key = (id(counter), *labels)
        counter.labels(*labels).inc(max(0, total - self._seen.get(key, 0)))
        self._seen[key] = total

    def _chain(self, found: ChainSnapshot) -> None:
        name, breaker = found.name, found.breaker
        for state in State:
            STATE.labels(name, state.value).set(breaker.state is state)
        RATE.labels(name).set(-1 if breaker.failure_rate is None else breaker.failure_rate)
        kinds = {"successful": breaker.succeeded, "failed": breaker.failed, "ignored": breaker.ignored}
        for kind, total in {**kinds, "not_permitted": found.rejected_by_breaker}.items():
            self._count(CALLS, total, name, kind)
        for outcome in ("successful", "failed"):
            for how in ("without_retry", "with_retry"):
                self._count(RETRIES, getattr(found, f"{outcome}_{how}"), name, f"{outcome}_{how}")
        for layer in ("breaker", "limiter", "bulkhead"):
            self._count(REJECTED, getattr(found, f"rejected_by_{layer}"), name, layer)
        self._count(REJECTED, found.rejected_for_time, name, "time")
        self._count(REFUSED, found.refused, name)
        if found.bulkhead_available is not None:
            PLACES.labels(name).set(found.bulkhead_available)
        if found.limiter_available is not None:
            PERMITS.labels(name).set(found.limiter_available)

    def _read_database(self) -> None:
        try:
            for destination, figures in outbox.stats().items():
                PENDING.labels(destination).set(figures.pending)
                OLDEST.labels(destination).set(figures.oldest_seconds)
                DEAD.labels(destination).set(figures.dead)
            effective = mode.current().effective
            for one in EffectiveMode:
                MODE.labels(one.value.lower()).set(one == effective)
            SAMPLED.set(datetime.now(UTC).timestamp())
            self._silent = False
        except (DatabaseError, InterfaceError, PoolTimeout) as error:
            if not self._silent:  # one line an outage
                logger.warning("metrics of the database stand still", extra={"error": type(error).__name__})
            self._silent = True
        finally:
            connection.close()


def _chains(web: bool) -> Iterator[Chain]:
    gateway = payment_clients.inline_gateway() if web else payment_clients.built_background_gateway()
    if gateway is not None:
        yield gateway.chain
    yield order_clients.catalog().chain
    yield order_clients.rates().chain


def start(*, web: bool) -> None:
    """Begins to copy. Call after the fork, once."""
    Sampler(web=web).start()
