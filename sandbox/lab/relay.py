"""A service that works a little and asks the next one: links for chains of services.

`python -m sandbox.lab.relay --next URL …`, started like a neighbour. Its calls go through the product's chain.
"""

from __future__ import annotations

import argparse
import functools
import threading
import time
from typing import Any

from resilience.breaker import BreakerPolicy
from resilience.chain import Chain, ChainPolicy
from resilience.deadline import HEADER, Deadline
from resilience.errors import ResilienceError
from resilience.http import HttpPolicy, HttpSession, request_id
from resilience.retry import RetryPolicy
from sandbox.http import Request, Response
from sandbox.neighbour import Neighbour, NotFound, add_arguments, run

_NEVER_OPENS = 100_000


def link(
    url: str, attempts: int, *, timeout: float, retry_budget: float | None = None, breaker: bool = False
) -> tuple[HttpSession, Chain]:
    """The way to the next service. `retry_budget` None: repeats without a bound; `breaker` False: it never opens."""
    bounded = {} if retry_budget is None else {"budget_ratio": retry_budget}
    unbounded = {"budget_ratio": 1.0, "budget_floor_per_second": 1000.0} if retry_budget is None else {}
    watching = BreakerPolicy() if breaker else BreakerPolicy(window=_NEVER_OPENS, min_calls=_NEVER_OPENS)
    session = HttpSession(
        HttpPolicy(
            url,
            connect_timeout=timeout,
            read_timeout=timeout,
            call_timeout=timeout,
            pool_wait=timeout,
            pool_size=60,
        )
    )
    retry = RetryPolicy(attempts=attempts, backoff=0.005, backoff_cap=0.02, **bounded, **unbounded)
    return session, Chain(ChainPolicy("next", call_timeout=timeout, retry=retry, breaker=watching))


class Relay(Neighbour):
    """Works for `work_ms`, then asks the next service, if there is one, and answers 503 when that fails.

    `inherit`: it lives within the caller's deadline, and begins nothing it could not finish in time; otherwise
    it takes its own `timeout_ms` whatever the caller says, as services do that do not hand the deadline on.
    """

    name = "relay"

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        control_port: int = 0,
        *,
        next_url: str = "",
        attempts: int = 1,
        work_ms: int = 0,
        timeout_ms: int = 5000,
        inherit: bool = False,
    ) -> None:
        self._next = link(next_url, attempts, timeout=timeout_ms / 1000) if next_url else None
        self._own_work, self._timeout_ms, self._inherit = work_ms / 1000, timeout_ms, inherit
        self._worked: list[str] = []
        self._lock = threading.Lock()
        super().__init__(host, port, control_port)

    def answer(self, request: Request) -> Response:
        if "wait_ms" in request.query:  # a queue before the door
            time.sleep(float(request.query["wait_ms"]) / 1000)
        incoming = request.headers.get(HEADER.lower()) if self._inherit else None
        deadline = Deadline.after_ms(self._timeout_ms, incoming=incoming)
        if self._inherit:  # what went by since the request came was the caller's time too
            passed = time.monotonic() - request.arrived
            deadline = Deadline(deadline.end - passed, deadline.clock)
        if deadline.remaining() < self._own_work:
            return Response.of({"error": "too little time left to begin"}, 504)
        with self._lock:
            self._worked.append(request.headers.get("x-request-id", ""))
        time.sleep(self._own_work)
        if self._next is None:
            return Response.of({})
        session, chain = self._next
        token = request_id.set(request.headers.get("x-request-id"))
        try:
            chain.call(
                lambda attempt: session.request("GET", "/", deadline=attempt),
                deadline=deadline,
                repeatable=True,
            )
        except ResilienceError:
            return Response.of({"error": "the next service failed"}, 503)
        finally:
            request_id.reset(token)
        return Response.of({})

    def control(self, request: Request) -> Response:
        """`GET /_sandbox/work`: the ids of the requests that were worked on."""
        if request.path != "/_sandbox/work":
            raise NotFound
        with self._lock:
            return Response.of(list(self._worked))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sandbox.lab.relay")
    add_arguments(parser, "relay")
    parser.add_argument("--next", default="", help="URL of the next service")
    parser.add_argument("--attempts", type=int, default=1)
    parser.add_argument("--work-ms", type=int, default=0)
    parser.add_argument("--timeout-ms", type=int, default=5000)
    parser.add_argument("--inherit", action="store_true", help="live within the caller's deadline")
    options: dict[str, Any] = vars(parser.parse_args())
    own = {name: options[name] for name in ("attempts", "work_ms", "timeout_ms", "inherit")}
    run("relay", functools.partial(Relay, next_url=options["next"], **own), options)


if __name__ == "__main__":
    main()
