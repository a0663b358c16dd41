"""`python -m bench.goodput [DIRECTORY]`: what a server still gets done when far more is asked of it than it can do.

One web process of a whole demo shop. Capacity is what it answers in full to as many clients as it has places, each
asking again at once. Then requests come at 2, 5 and 10 times that pace, whatever becomes of them, over kept
connections as from a proxy. Good is a full answer within a second of the moment the request was due; goodput is good
answers a second as a share of capacity. The crowd runs on the same machine and takes from what the server could do.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sandbox.control import Control
from sandbox.demo import Demo
from sandbox.shopper import Shopper

SECONDS = 8.0
GOOD_SECONDS = 1.0
CONNECTIONS = 64
TIMES = (2, 5, 10)
THREADS = 4
# Checkout may take 3 of 4 places. The catalog takes its time, so that places and not the processor are what is scarce.
CATALOG_MS = 120
SETTINGS = {
    "WEB_WORKERS": "1",
    "WEB_THREADS": str(THREADS),
    "CHECKOUT_BUDGET_MS": "1000",
    "CATALOG_ATTEMPTS": "1",
    "EXPECTED_RPS": "10",
    "CALLER_TIMEOUT_SECONDS": "100",
    **{f"{name}_BULKHEAD": str(THREADS - 1) for name in ("PAYMENT", "CATALOG", "RATES")},
}
PAGES = {"/checkout/": int(0.9 * THREADS), "/": int(0.75 * THREADS)}
"""Page: how many of it may be in work."""


@dataclass(frozen=True)
class Row:
    """One pace. Milliseconds of the median and the slowest of twenty answers; `goodput` is a share of capacity."""

    page: str
    times: int
    asked_per_second: float
    good_per_second: float
    goodput: float
    refused: int
    lost: int
    good_ms: float
    refused_ms: float
    refused_p95_ms: float


class Heard:
    """What the clients heard."""

    def __init__(self) -> None:
        self.took: dict[int, list[float]] = {200: [], 503: []}
        self.seen: Counter[int] = Counter()
        self._lock = threading.Lock()

    def note(self, status: int, seconds: float) -> None:
        with self._lock:
            self.seen[status] += 1
            self.took.setdefault(status, []).append(seconds)

    @property
    def good(self) -> int:
        return sum(seconds <= GOOD_SECONDS for seconds in self.took[200])


def ask(connection: http.client.HTTPConnection, page: str, cookie: str, heard: Heard, due: float) -> None:
    """One request; the time counts from `due`, a reading of the monotonic clock."""
    try:
        connection.request("GET", page, headers={"Cookie": cookie})
        answer = connection.getresponse()
        answer.read()
        heard.note(answer.status, time.monotonic() - due)
    except (OSError, http.client.HTTPException):
        connection.close()
        heard.note(0, time.monotonic() - due)


def connect(base: str) -> http.client.HTTPConnection:
    parts = urlsplit(base)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)


def capacity(base: str, page: str, cookie: str, places: int) -> float:
    """Full answers a second to `places` clients that ask again at once."""
    heard, end = Heard(), time.monotonic() + SECONDS

    def client() -> None:
        connection = connect(base)
        while time.monotonic() < end:
            ask(connection, page, cookie, heard, time.monotonic())
        connection.close()

    clients = [threading.Thread(target=client) for _ in range(places)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    return heard.good / SECONDS


def overload(base: str, page: str, cookie: str, pace: float) -> Heard:
    """`pace` requests a second for `SECONDS` over `CONNECTIONS` kept ones; late when all of them are busy."""
    heard, began = Heard(), time.monotonic()
    numbers = iter(range(int(pace * SECONDS)))
    lock = threading.Lock()

    def client() -> None:
        connection = connect(base)
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                break
            due = began + number / pace
            time.sleep(max(0.0, due - time.monotonic()))
            ask(connection, page, cookie, heard, due)
        connection.close()

    clients = [threading.Thread(target=client) for _ in range(CONNECTIONS)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    return heard


def row(base: str, page: str, cookie: str, full: float, times: int) -> Row:
    begun = time.monotonic()
    heard = overload(base, page, cookie, full * times)
    seconds = time.monotonic() - begun
    refused = sorted(heard.took[503]) or [0.0]
    return Row(
        page=page,
        times=times,
        asked_per_second=round(heard.seen.total() / seconds, 1),
        good_per_second=round(heard.good / seconds, 1),
        goodput=round(heard.good / seconds / full, 2),
        refused=heard.seen[503],
        lost=heard.seen.total() - heard.seen[200] - heard.seen[503],
        good_ms=round(1000 * statistics.median(heard.took[200] or [0.0]), 1),
        refused_ms=round(1000 * statistics.median(refused), 1),
        refused_p95_ms=round(1000 * refused[int(0.95 * (len(refused) - 1))], 1),
    )


def measure() -> dict[str, Any]:
    """Capacity and the rows of each page."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        Path(home).chmod(0o711)  # run by root, PostgreSQL is another user's, who has to pass through
        demo = Demo(Path(home), env=SETTINGS)
        try:
            demo.start()
            person = Shopper(demo.url)
            person.get("/cart/")
            person.fill_basket("ROPE-12")
            cookie = "; ".join(f"{name}={value}" for name, value in person.cookies().items())
            Control(demo.env["CATALOG_CONTROL_URL"]).set_faults({"effect": {"latency_ms": CATALOG_MS}})
            full = {page: capacity(demo.url, page, cookie, places) for page, places in PAGES.items()}
            rows = [row(demo.url, page, cookie, full[page], times) for page in PAGES for times in TIMES]
        finally:
            demo.stop()
    return {
        "capacity_per_second": {page: round(figure, 1) for page, figure in full.items()},
        "machine": f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "rows": [asdict(one) for one in rows],
    }


def table(result: dict[str, Any]) -> str:
    lines = [
        "| page | × capacity | asked /s | good /s | goodput | refused | lost | good ms | refused ms (p95) |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    lines += [
        f"| `{one['page']}` | {one['times']} | {one['asked_per_second']} | {one['good_per_second']} | {one['goodput']} "
        f"| {one['refused']} | {one['lost']} | {one['good_ms']} | {one['refused_ms']} ({one['refused_p95_ms']}) |"
        for one in result["rows"]
    ]
    return "\n".join(lines)


_LIMIT = (
    "What limits `/`: one process has one core's worth of Python, and a page takes 12 ms of it. A request "
    "that is refused takes 0.40 ms, of which the decision and its answer are 0.01 ms; the rest is what "
    "gunicorn's threads take for any request, an application that only answers with a constant text included "
    "(measured with all places taken, at 800 requests a second over 64 kept connections; behind Django's "
    "middleware a refusal took 0.74 ms). So at 5 times the capacity at most 0.86 of it can be left, at 10 "
    "times 0.7, and the crowd, 0.2 ms a request, the database and whatever else runs on two cores take their "
    "part of that. More is only to be had in front: a proxy that limits the requests it passes on, or more "
    "processes."
)


def _page(result: dict[str, Any]) -> str:
    head = " ".join((__doc__ or "").split("\n\n", 1)[1].split())
    full = ", ".join(f"{figure}/s of `{page}`" for page, figure in result["capacity_per_second"].items())
    return (
        f"# Goodput under overload\nWritten by `make bench`. {head}\n\n"
        f"Capacity: {full} ({result['machine']}). `/checkout/` waits {CATALOG_MS} ms for the catalog, `/` only "
        "works.\n\n"
        f"{table(result)}\n\n{_LIMIT}\n"
    )


def main() -> None:
    """Prints the table; with a directory also writes goodput.md and goodput.json there."""
    result = measure()
    print(result["capacity_per_second"], result["machine"])
    print(table(result))
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "goodput.md").write_text(_page(result))
        (folder / "goodput.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
