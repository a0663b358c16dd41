"""Stopping a web server while people still come: signals, clients that count, a checkout in flight."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from urllib.parse import urlsplit

import requests

from sandbox.control import Control
from sandbox.shopper import Shopper

PAUSE = 0.013
"""Seconds between two requests of the load balancer, as in the source."""
SLOW_CHECKOUTS = {
    # A checkout may take as long as the gateway does here: time is not the subject, its end is.
    "CHECKOUT_BUDGET_MS": "60000",
    "INLINE_LEASE_SECONDS": "70",
    "CALLER_TIMEOUT_SECONDS": "3600",
    "NOTICE_OUTAGE_SECONDS": "600",
    "EXPECTED_RPS": "2",
    "ORCHESTRATOR_GRACE_SECONDS": "60",
    "WEB_WORKERS": "1",
    **{f"{name}_BULKHEAD": "8" for name in ("PAYMENT", "CATALOG", "RATES")},
}


def connect(base: str) -> http.client.HTTPConnection:
    parts = urlsplit(base)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)


def ask(connection: http.client.HTTPConnection, path: str = "/health/live/") -> str:
    """The status as text, or what went wrong."""
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        return type(error).__name__
    if answer.headers.get("Connection", "").lower() == "close":
        connection.close()
    return str(answer.status)


def ask_anew(base: str, path: str = "/health/live/") -> str:
    """The same over a connection of its own."""
    connection = connect(base)
    try:
        return ask(connection, path)
    finally:
        connection.close()


def keep_asking(base: str, seconds: float, clients: int = 0) -> Counter[str]:
    """New connections every 13 ms, and kept-alive clients with a request every 50 ms, as long as the load
    balancer sends."""
    seen: Counter[str] = Counter()
    end = time.monotonic() + seconds

    def faithful() -> None:
        connection = connect(base)
        while time.monotonic() < end:
            seen[ask(connection)] += 1
            time.sleep(0.05)
        connection.close()

    threads = [threading.Thread(target=faithful) for _ in range(clients)]
    for thread in threads:
        thread.start()
    while time.monotonic() < end:
        seen[ask_anew(base)] += 1
        time.sleep(PAUSE)
    for thread in threads:
        thread.join(20)
    return seen


class Stop:
    """One SIGTERM and what came of it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.at = time.monotonic()
        process.terminate()

    def again(self) -> None:
        os.kill(self._process.pid, signal.SIGTERM)

    def wait(self, seconds: float = 60.0) -> tuple[int, float]:
        """Exit code and seconds since the signal."""
        code = self._process.wait(seconds)
        return code, time.monotonic() - self.at


def prepared_checkout(base: str) -> Callable[[], str]:
    """Somebody with a filled form before them. Calling it confirms the order: the status, "refused" or "cut off"."""
    shopper = Shopper(base, timeout=90)
    form = shopper.fill_basket("ROPE-12")
    shopper.hang_up()  # what is asked is whether the door is open

    def submit() -> str:
        try:
            return str(shopper.submit(form).status)
        except requests.RequestException as error:
            return "refused" if "refused" in str(error) else "cut off"

    return submit


def checkout_in_flight(base: str, gateway: Control) -> Future[str]:
    """A checkout that is at the gateway now: what `prepared_checkout` says when it ends."""
    submit = prepared_checkout(base)
    before = _charges_asked(gateway)
    pool = ThreadPoolExecutor(1)
    future = pool.submit(submit)
    pool.shutdown(wait=False)
    give_up = time.monotonic() + 15
    while _charges_asked(gateway) == before and not future.done() and time.monotonic() < give_up:
        time.sleep(0.02)
    return future


def _charges_asked(gateway: Control) -> int:
    return sum(request["method"] == "POST" for request in gateway.ledger()["requests"])
