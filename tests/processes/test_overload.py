"""More people than can be served: those who pay go first, the rest hear "later" at once, and it ends when they go."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from tests.neighbours import HANG, REFUSE, Neighbourhood
from tests.processes.harness import Browser, Stack, eventually
from tests.world import VISA

pytestmark = pytest.mark.process
CLIENTS = 200


class Crowd:
    """What a crowd of clients, each asking again as soon as it is answered, gets to hear."""

    def __init__(self) -> None:
        self.seen: Counter[int] = Counter()
        self.took: dict[int, list[float]] = defaultdict(list)
        self.without_retry_after = 0
        self._lock = threading.Lock()

    def note(self, status: int, seconds: float, retry_after: str | None) -> None:
        with self._lock:
            self.seen[status] += 1
            self.took[status].append(seconds)
            self.without_retry_after += status == 503 and not retry_after

    def quantile(self, status: int, part: float) -> float:
        times = sorted(self.took[status])
        return times[int(part * (len(times) - 1))] if times else 0.0


@contextmanager
def crowd(base: str, paths: list[str], clients: int, pause: float) -> Iterator[Crowd]:
    """`clients` people over kept-alive connections, each with `pause` seconds between two requests."""
    found, stop = Crowd(), threading.Event()
    parts = urlsplit(base)

    def person(number: int) -> None:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        while not stop.wait(pause):
            begun = time.monotonic()
            try:
                connection.request("GET", paths[number % len(paths)])
                answer = connection.getresponse()
                answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                found.note(0, time.monotonic() - begun, None)
                continue
            found.note(answer.status, time.monotonic() - begun, answer.headers.get("Retry-After"))
        connection.close()

    people = [threading.Thread(target=person, args=(number,), daemon=True) for number in range(clients)]
    for one in people:
        one.start()
    try:
        yield found
    finally:
        stop.set()
        for one in people:
            one.join(30)


def test_two_hundred_clients_and_hung_neighbours_take_neither_probes_nor_orders_down(
    stack: Stack, neighbours: Neighbourhood
) -> None:
    base = stack.web(WEB_WORKERS="1", WEB_THREADS="8")
    order = Browser(base).buy().path
    buyer = Browser(base)
    neighbours.fault(neighbours.gateway, REFUSE)
    unpaid = buyer.buy().path
    neighbours.fault(neighbours.gateway, HANG)
    neighbours.fault(neighbours.catalog, HANG)
    neighbours.fault(neighbours.rates, HANG)
    lives, pages = [], []
    with crowd(base, ["/", "/cart/"], CLIENTS, pause=1.0) as found:
        eventually(lambda: found.seen[503] > 0, 20)
        for _ in range(100):
            begun = time.monotonic()
            assert requests.get(f"{base}/health/live/", timeout=10).status_code == 200
            lives.append(time.monotonic() - begun)
            pages.append(requests.get(base + order, timeout=10).status_code)
        turned_away = found.seen[503]
        neighbours.heal()
        paid = buyer.post(f"{unpaid}pay/", {"method": VISA})
        eventually(lambda: found.seen[503] > turned_away, 10, "the crowd had gone before the payment")
    print(f"crowd {dict(found.seen)}, 503 p50 {found.quantile(503, 0.5) * 1000:.0f} ms")
    print(f"live at most {max(lives) * 1000:.0f} ms; order page {Counter(pages)}")
    assert max(lives) < 1, max(lives)
    assert set(pages) == {200}, Counter(pages)
    assert (paid.status, stack.orders()) == (200, {"PAID": 2}), paid.text
    assert set(found.seen) == {200, 503}, found.seen
    assert found.without_retry_after == 0
    time.sleep(2)
    after = [requests.get(base + path, timeout=10).status_code for path in ("/", "/cart/") * 10]
    assert set(after) == {200}, Counter(after)


def test_a_refusal_costs_less_than_a_tenth_of_a_second(stack: Stack, neighbours: Neighbourhood) -> None:
    """All places are taken by checkouts that wait for the gateway; nobody else needs the processor."""
    bulkheads = {f"{name}_BULKHEAD": "3" for name in ("PAYMENT", "CATALOG", "RATES")}
    patient = {"CHECKOUT_BUDGET_MS": "20000", "INLINE_LEASE_SECONDS": "30"}
    base = stack.web(WEB_WORKERS="1", WEB_THREADS="4", **patient, **bulkheads)
    buyers = [Browser(base) for _ in range(3)]
    forms = []
    for buyer in buyers:
        buyer.put_in_basket()
        forms.append(buyer.checkout_form())
    order = Browser(base).buy().path
    neighbours.fault(neighbours.gateway, {"match": {"method": "POST"}, **HANG})
    before = len(neighbours.money_calls)

    def wait_in_vain(buyer: Browser, form: dict[str, Any]) -> None:
        with suppress(requests.ConnectionError):  # the server is stopped under it
            buyer.submit(form)

    for buyer, form in zip(buyers, forms, strict=True):
        threading.Thread(target=wait_in_vain, args=(buyer, form), daemon=True).start()
    eventually(lambda: len(neighbours.money_calls) == before + 3, 10)
    session = requests.Session()
    times = []
    for path in ["/", "/checkout/"] * 20:
        begun = time.monotonic()
        answer = session.get(base + path, timeout=10)
        times.append(time.monotonic() - begun)
        assert answer.status_code == 503, path
        assert "Server" not in answer.headers, "a thread was taken to say no"
        assert int(answer.headers["Retry-After"]) >= 1
        assert "Nothing was ordered" in answer.text
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    known = {"Accept-Language": "de", "Cookie": "django_language=ru", "X-Request-ID": "req-7"}
    answer = session.get(base, headers=known, timeout=10)
    assert (answer.status_code, answer.headers["X-Request-ID"]) == (503, "req-7")
    assert '<html lang="ru"' in answer.text
    assert session.head(base, timeout=10).headers["Content-Length"] != "0"
    print(f"refused within p50 {sorted(times)[20] * 1000:.1f} ms, max {max(times) * 1000:.1f} ms")
    assert sorted(times)[int(0.95 * len(times))] < 0.1, sorted(times)
    assert session.get(base + order, timeout=10).status_code == 200
    assert session.get(f"{base}/ops/", timeout=10).status_code == 200
    neighbours.heal()


def test_a_client_that_stops_in_the_middle_of_a_request_loses_its_thread(stack: Stack) -> None:
    base = stack.web(WEB_WORKERS="1", WEB_THREADS="2", SPARE_THREADS="2")
    parts = urlsplit(base)
    lazy = [socket.create_connection((parts.hostname, parts.port)) for _ in range(4)]
    for number, connection in enumerate(lazy):
        head = "POST /cart/add/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
        connection.sendall((head + ("\r\nsku=" if number % 2 else "X-Slow: ")).encode())
    begun = time.monotonic()
    assert requests.get(f"{base}/health/live/", timeout=30).status_code == 200
    assert requests.get(base, timeout=30).status_code == 200
    print(f"served {time.monotonic() - begun:.1f} s later")
    for connection in lazy:
        connection.close()
