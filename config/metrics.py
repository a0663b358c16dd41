"""Every series of one process, under resilience4j's names where they exist. docs/reference/metrics.md lists them.

Import after the fork. Labels are names out of the code or the settings, never anything that a visitor sends.
"""

from __future__ import annotations

from typing import Any

from prometheus_client import Counter, Gauge, Histogram

# From a cache's answer to a worker's longest call, dense around the shares of the checkout's budget.
_CALLS = (0.005, 0.01, 0.025, 0.05, 0.08, 0.12, 0.16, 0.2, 0.24, 0.3, 0.4, 0.5, 1, 2.5, 5, 10)
_REQUESTS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 2.5, 5, 10)


def _gauge(name: str, text: str, *labels: str, of: str) -> Gauge:
    """`of`: how the values of several processes make one, see prometheus_client."""
    return Gauge(name, text, labels, multiprocess_mode=of)  # type: ignore[arg-type]


def _shared(name: str, text: str, *labels: str) -> Gauge:
    """A figure out of the database, the same whoever reads it: the newest reading counts."""
    return _gauge(name, text, *labels, of="mostrecent")


# The chain of one neighbour, or of Valkey (`valkey`, web only). A breaker belongs to its process: the worst of the
# living ones is shown.
STATE = _gauge(
    "resilience_circuitbreaker_state", "1 while a process is in this state", "name", "state", of="livemax"
)
FAILURE_RATE = _gauge(
    "resilience_circuitbreaker_failure_rate", "Percent of the window; -1 unknown", "name", of="livemax"
)
SLOW_RATE = _gauge(
    "resilience_circuitbreaker_slow_call_rate", "Percent of the window; -1 unknown", "name", of="livemax"
)
CALLS = Counter(
    "resilience_circuitbreaker_calls", "Attempts by what the breaker made of them", ["name", "kind"]
)
SECONDS = Histogram(
    "resilience_circuitbreaker_calls_seconds",
    "Attempts that reached the call",
    ["name", "kind"],
    buckets=_CALLS,
)
RETRIES = Counter(
    "resilience_retry_calls", "Calls by their end and by whether they were repeated", ["name", "kind"]
)
REJECTED = Counter(
    "resilience_rejections", "Every refusal of a layer of ours, also of a repeat", ["name", "layer"]
)
REFUSED = Counter("resilience_final_refusals", "Calls whose caller was finally told: not sent", ["name"])
PLACES = _gauge("resilience_bulkhead_available_concurrent_calls", "Free places", "name", of="livemin")
PERMITS = _gauge("resilience_ratelimiter_available_permissions", "Free permissions", "name", of="livemin")

CONNECTIONS_MADE = Counter(
    "holdfast_valkey_connections_made", "Connections to Valkey opened by web processes"
)

# The web server's door and pages.
REQUESTS = Counter("holdfast_http_requests", "Answers, shed ones too", ["page", "method", "status"])
TOOK = Histogram(
    "holdfast_http_request_duration_seconds", "Time to the answer", ["page", "method"], buckets=_REQUESTS
)
SHED = Counter("holdfast_shed_requests", "Requests refused at the door", ["priority"])
IN_FLIGHT = _gauge("holdfast_requests_in_flight", "Requests in work, probes not counted", of="livesum")
IN_FLIGHT_LIMIT = _gauge("holdfast_requests_in_flight_limit", "Places of all processes", of="livesum")

# Orders and money, as this process saw them.
CHECKOUTS = Counter("holdfast_checkouts", "Submitted checkouts by their end", ["end"])
CHARGES = Counter("holdfast_charges", "Calls to charge an order by what the answer meant", ["outcome"])

# The database's own figures.
PENDING = _shared("holdfast_outbox_pending", "Messages waiting", "destination")
OLDEST = _shared("holdfast_outbox_oldest_age_seconds", "Age of the oldest waiting message", "destination")
LATE = _shared(
    "holdfast_outbox_late_seconds", "For how long a message could have been taken by somebody", "destination"
)
DEAD = _shared("holdfast_outbox_dead_letters", "Dead letters", "destination")
MODE = _shared("holdfast_mode", "1: orders are taken in this mode", "mode")
UNPAID_ORDERS = _shared("holdfast_unpaid_orders", "Orders accepted and not paid")
UNPAID_ORDERS_LIMIT = _shared("holdfast_unpaid_orders_limit", "Agreed limit of holdfast_unpaid_orders")
UNPAID_TOTAL = _shared("holdfast_unpaid_total_minor", "Their sum in minor units of the base currency")
UNPAID_TOTAL_LIMIT = _shared(
    "holdfast_unpaid_total_limit_minor", "Agreed limit of holdfast_unpaid_total_minor"
)
RESERVES_ENDING = _shared("holdfast_reserves_ending", "Unpaid orders whose reserve ends within ten minutes")
MONEY_CHECKS = _shared("holdfast_money_checks_open", "Cases about money that wait for a person")
UNKNOWN_PAYMENTS = _shared(
    "holdfast_payments_unknown", "Payments of which nobody has known for a minute whether they took money"
)
RATE_AGE = _shared("holdfast_rate_age_seconds", "Since the rate was fetched; +Inf without one", "currency")
RATE_STALE = _shared("holdfast_rate_stale", "1: the rate is not fresh", "currency")
CURRENCY_OFFERED = _shared("holdfast_currency_offered", "1: orders are taken in this currency", "currency")
SAMPLED = _shared("holdfast_database_sampled_timestamp_seconds", "When the database was last read")


def every() -> list[Any]:
    """All metrics of this module, in the order of their names in it."""
    return [value for value in globals().values() if isinstance(value, Counter | Gauge | Histogram)]
