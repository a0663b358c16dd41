"""Three services in a row, each of which tries three times: what the last one gets to see."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

from resilience.budget import repeat_amplification
from resilience.deadline import Deadline
from resilience.errors import ResilienceError
from sandbox.control import Started, start_neighbour
from sandbox.lab.plot import bars
from sandbox.lab.relay import link
from sandbox.lab.report import Report, Row, Say

ATTEMPTS = 3
CALLERS = 4
REQUESTS = 100
TIMEOUT = 20.0
_VARIANTS: dict[str, tuple[int, float | None, bool]] = {
    # attempts of each inner link, retry budget of the edge, breaker at the edge
    "3 attempts on each of 3 links": (ATTEMPTS, None, False),
    "repeats at the edge only": (1, None, False),
    "at the edge, with a retry budget": (1, 0.1, False),
    "with the budget and the breaker": (1, 0.1, True),
}


def run(say: Say, requests: int = REQUESTS) -> Report:
    """Four outages, one for each way of repeating; the last service answers 503 to everything."""
    seen: dict[str, int] = {}
    for name, (inner, budget, breaker) in _VARIANTS.items():
        seen[name] = _outage(requests, inner, budget, breaker=breaker)
        say(f"{name}: {requests} requests became {seen[name]} calls of the last service")
    storm, edge, budget_only, both = seen.values()
    bound = requests * repeat_amplification(ATTEMPTS, 0.1) + 10
    each = f"{storm / requests:g}"
    rows = (
        Row("calls for one request, 3 attempts on each of 3 links", "27", each, "27", storm == 27 * requests),
        Row(
            "calls for one request, repeats at the edge only",
            "3",
            f"{edge / requests:g}",
            "3",
            edge == ATTEMPTS * requests,
        ),
        Row(
            f"calls for {requests} requests, with a retry budget of a tenth",
            "110",
            str(budget_only),
            f"at most {bound:.0f}: 10 % and a floor of one a second",
            budget_only <= bound,
        ),
        Row(
            f"calls for {requests} requests, with budget and breaker", "", str(both), "at most 25", both <= 25
        ),
    )
    groups = [(name, {"calls": count / requests}) for name, count in seen.items()]
    return Report(
        "retry-storm",
        "3 × 3 × 3 = 27",
        rows,
        {"retry-storm": bars("Calls of the last service for one request, in its outage", "", groups)},
        {"calls": seen, "requests": requests},
    )


def _outage(requests: int, inner: int, budget: float | None, *, breaker: bool) -> int:
    """How many calls reach the last of three services when we ask the first one `requests` times."""
    with ExitStack() as last:
        third = last.enter_context(start_neighbour("catalog"))
        third.break_with({"status": 503})
        second = last.enter_context(_service(third.url, inner))
        first = last.enter_context(_service(second.url, inner))
        session, chain = link(first.url, ATTEMPTS, timeout=TIMEOUT, retry_budget=budget, breaker=breaker)

        def ask(_: int) -> None:
            with suppress(ResilienceError):
                chain.call(
                    lambda attempt: session.request("GET", "/", deadline=attempt),
                    deadline=Deadline.after_ms(TIMEOUT * 1000),
                    repeatable=True,
                )

        with ThreadPoolExecutor(CALLERS) as pool:
            list(pool.map(ask, range(requests)))
        session.close()
        return len(third.ledger()["requests"])


def _service(next_url: str, attempts: int) -> Started:
    timeout = str(int(TIMEOUT * 1000))
    return start_neighbour(
        "lab.relay", "--next", next_url, "--attempts", str(attempts), "--timeout-ms", timeout
    )
