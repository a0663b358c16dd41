"""`python -m bench.goodput [DIRECTORY]`: what a server still gets done when far more is asked of it than it can do.

One web process of a whole demo shop. Capacity is what it answers in full to as many clients as it has places, each
asking again at once. Right after that, requests come at 2, 5 or 10 times that pace, whatever becomes of them, over
kept connections as from a proxy; seven rounds of all. Good is a full answer within a second of the moment the request
was due; goodput is good answers a second as a share of capacity. The crowd runs on the same machine and takes from
what the server could do.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter, deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from sandbox.control import Control
from sandbox.demo import Demo
from sandbox.shopper import Shopper

SECONDS = 4.0
ROUNDS = 7
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
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


@dataclass(frozen=True)
class Row:
    """One pace. Milliseconds of the median and the slowest of twenty answers; `goodput` is a share of the capacity of
    the same rounds; `least` is the worst of them.
    """

    page: str
    times: int
    asked_per_second: float
    good_per_second: float
    goodput: float
    least: float
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
        self.seconds = 0.0  # from the first question to the last answer

    def note(self, status: int, seconds: float) -> None:
        self.seen[status] += 1
        self.took.setdefault(status, []).append(seconds)

    @property
    def good(self) -> int:
        return sum(seconds <= GOOD_SECONDS for seconds in self.took[200])

    @property
    def good_per_second(self) -> float:
        return self.good / self.seconds


class Crowd:
    """Kept connections to one page, in one thread: a crowd must not be what the server's processor is busy with."""

    def __init__(self, base: str, page: str, cookie: str, connections: int) -> None:
        parts = urlsplit(base)
        self._address = (parts.hostname or "", parts.port or 80)
        self._request = f"GET {page} HTTP/1.1\r\nHost: {parts.netloc}\r\nCookie: {cookie}\r\n\r\n".encode()
        self._poll = selectors.DefaultSelector()
        self._asked: dict[socket.socket, tuple[float, bytearray]] = {}
        self._idle: deque[socket.socket] = deque()
        self.heard = Heard()
        for _ in range(connections):
            self._connect()

    def run(self, seconds: float, pace: float | None = None) -> Heard:
        """`pace` requests a second, late when all connections are busy; without one, all ask again at once."""
        began, asked = time.monotonic(), 0
        while True:
            now = time.monotonic()
            due = began + asked / pace if pace else now
            over = due >= began + seconds
            if over and not self._asked:
                break
            if not over and due <= now and self._idle:
                self._ask(due)
                asked += 1
            else:
                self._listen(max(0.0, due - now) if self._idle and not over else 1.0)
        for connection in self._idle:
            connection.close()
        self._poll.close()
        self.heard.seconds = time.monotonic() - began
        return self.heard

    def _connect(self) -> None:
        connection = socket.create_connection(self._address, timeout=10)
        self._poll.register(connection, selectors.EVENT_READ)
        self._idle.append(connection)

    def _ask(self, due: float) -> None:
        connection = self._idle.popleft()
        self._asked[connection] = due, bytearray()
        connection.sendall(self._request)

    def _listen(self, seconds: float) -> None:
        for key, _ in self._poll.select(seconds):
            connection = cast("socket.socket", key.fileobj)
            due, answer = self._asked.get(connection, (0.0, bytearray()))
            part = connection.recv(262_144)
            answer += part
            if part and not _is_whole(answer):
                continue
            self._asked.pop(connection, None)
            self.heard.note(int(answer[9:12]) if part else 0, time.monotonic() - due)
            if part:
                self._idle.append(connection)
            else:
                self._poll.unregister(connection)
                connection.close()
                self._connect()


def _is_whole(answer: bytearray) -> bool:
    end = answer.find(b"\r\n\r\n")
    length = _LENGTH.search(answer, 0, end + 2) if end > 0 else None
    return length is not None and len(answer) >= end + 4 + int(length[1])


@dataclass
class Turn:
    """Capacity in answers a second, and what was heard right after it: a processor is not the same for long."""

    full: float
    heard: Heard


def turn(base: str, page: str, cookie: str, times: int) -> Turn:
    full = Crowd(base, page, cookie, PAGES[page]).run(SECONDS).good_per_second
    return Turn(full, Crowd(base, page, cookie, CONNECTIONS).run(SECONDS, full * times))


def row(page: str, times: int, turns: list[Turn]) -> Row:
    seconds = sum(one.heard.seconds for one in turns)
    seen = sum((one.heard.seen for one in turns), Counter[int]())
    good = [took for one in turns for took in one.heard.took[200]]
    refused = sorted(took for one in turns for took in one.heard.took[503]) or [0.0]
    return Row(
        page=page,
        times=times,
        asked_per_second=round(seen.total() / seconds, 1),
        good_per_second=round(sum(one.heard.good for one in turns) / seconds, 1),
        goodput=round(sum(one.heard.good_per_second for one in turns) / sum(one.full for one in turns), 2),
        least=round(min(one.heard.good_per_second / one.full for one in turns), 2),
        refused=seen[503],
        lost=seen.total() - seen[200] - seen[503],
        good_ms=round(1000 * statistics.median(good or [0.0]), 1),
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
            turns: dict[tuple[str, int], list[Turn]] = {
                (page, times): [] for page in PAGES for times in TIMES
            }
            for _ in range(ROUNDS):
                for page, times in turns:
                    turns[page, times].append(turn(demo.url, page, cookie, times))
        finally:
            demo.stop()
    full = {
        page: statistics.median(
            one.full for (whose, _), some in turns.items() if whose == page for one in some
        )
        for page in PAGES
    }
    return {
        "capacity_per_second": {page: round(figure, 1) for page, figure in full.items()},
        "machine": f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "rows": [asdict(row(page, times, some)) for (page, times), some in turns.items()],
    }


def table(result: dict[str, Any]) -> str:
    lines = [
        "| page | × capacity | asked /s | good /s | goodput (least) | refused | lost | good ms | refused ms (p95) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{one['page']}` | {one['times']} | {one['asked_per_second']} | {one['good_per_second']} "
        f"| {one['goodput']} ({one['least']}) | {one['refused']} | {one['lost']} | {one['good_ms']} "
        f"| {one['refused_ms']} ({one['refused_p95_ms']}) |"
        for one in result["rows"]
    ]
    return "\n".join(lines)


_LIMIT = (
    "`/` only works, so that each refusal takes from the pages that are served: one process has one core's worth of "
    "Python. A request that there is no place for is therefore answered by the loop that read it, and never gets a "
    "thread; through a thread of gunicorn's, before Django, it took 0.40 ms, and 0.49 of the capacity were left at 10 "
    "times. Answered with Python's own calls on sockets it took 0.24 to 0.32 ms and left about 0.84; with calls that "
    "keep the interpreter lock, and a rest of up to 20 ms after each turn that refused, it takes 0.10 ms. The same "
    "crowd sent to another process, of which the server sees nothing, leaves about 0.95 on two cores."
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
