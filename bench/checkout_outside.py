"""Checkouts over real sockets: orders a second with one and two web processes, healthy, degraded and with a gateway
that hangs, and what a process weighs."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sandbox.lab.shop import Shop
from sandbox.processes import descendants
from sandbox.shopper import Answer, Shopper

BUDGET_MS = 500
CLIENTS = 6
ORDERS = 120
HUNG_RPS, HUNG_SECONDS = 40.0, 6.0
_SETTINGS = {
    "CHECKOUT_BUDGET_MS": str(BUDGET_MS),
    "PAYMENT_RATE_LIMIT": "10000",
    "DEGRADED_MAX_UNPAID_TOTAL": "1000000000",
}

Form = tuple[Shopper, dict[str, str]]


@dataclass(frozen=True)
class Outside:
    """One set-up. Milliseconds of the confirmation alone, as the shopper waits for it."""

    name: str
    processes: int
    per_second: float
    p50_ms: float
    p99_ms: float
    answers: dict[int, int]


@dataclass(frozen=True)
class Weight:
    """Megabytes of each kind of process: what it has of its own, after the orders."""

    web: float
    worker: float


def measure(say: Callable[[str], None]) -> tuple[list[Outside], Weight]:
    """One shop for each number of web processes."""
    found: list[Outside] = []
    weight = Weight(0, 0)
    for processes in (1, 2):
        with Shop(
            {**_SETTINGS, "WEB_WORKERS": str(processes)}, ("web", "worker", "money-worker", "beat")
        ) as shop:
            shop.sql("UPDATE orders_stockitem SET on_hand = 1000000")
            _closed(shop, _forms(shop, 20))
            found.append(_throughput(shop, "healthy", processes))
            weight = _weight(shop)
            _mode(shop, "on")
            found.append(_throughput(shop, "degraded", processes))
            _mode(shop, "auto")
            found.append(_hung(shop, processes))
        for one in found[-3:]:
            say(f"{one.processes} web processes, {one.name}: {one.per_second:.0f}/s, p99 {one.p99_ms:.0f} ms")
    return found, weight


def _forms(shop: Shop, count: int) -> list[Form]:
    """Filled in, two products in each basket."""

    def one(_: int) -> Form:
        shopper = Shopper(shop.demo.url)
        shopper.get("/cart/")
        shopper.post("/cart/add/", sku="LANTERN-BR", quantity=1)
        return shopper, shopper.fill_basket("ROPE-12")

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(one, range(count)))


def _closed(shop: Shop, forms: list[Form]) -> list[Answer]:
    """A few people, each confirming as soon as the one before is answered."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(lambda form: form[0].submit(form[1]), forms))


def _throughput(shop: Shop, name: str, processes: int) -> Outside:
    forms = _forms(shop, ORDERS)
    begun = time.monotonic()
    answers = _closed(shop, forms)
    return _outside(name, processes, answers, time.monotonic() - begun)


def _hung(shop: Shop, processes: int) -> Outside:
    """40 a second, whatever becomes of them, from the moment the gateway hangs."""
    forms = _forms(shop, int(HUNG_RPS * HUNG_SECONDS))
    shop.gateway.break_with({"hang": True})
    answers: list[Answer] = []
    lock = threading.Lock()

    def confirm(form: Form) -> None:
        answer = form[0].submit(form[1])
        with lock:
            answers.append(answer)

    begun = time.monotonic()
    with ThreadPoolExecutor(60) as pool:
        for number, form in zip(itertools.count(), forms, strict=False):
            time.sleep(max(0.0, begun + number / HUNG_RPS - time.monotonic()))
            pool.submit(confirm, form)
    took = time.monotonic() - begun
    shop.gateway.heal()
    return _outside("gateway hangs, 40 a second", processes, answers, took)


def _outside(name: str, processes: int, answers: list[Answer], took: float) -> Outside:
    times = sorted(1000 * answer.seconds for answer in answers)
    statuses: dict[int, int] = {}
    for answer in answers:
        statuses[answer.status] = statuses.get(answer.status, 0) + 1
    return Outside(
        name,
        processes,
        sum(answer.order is not None for answer in answers) / took,
        times[len(times) // 2],
        times[int(0.99 * (len(times) - 1))],
        statuses,
    )


def _mode(shop: Shop, setting: str) -> None:
    shop.manage("mode", setting, "--reason", "benchmark")
    time.sleep(1.5)  # read by all processes within a second


def _weight(shop: Shop) -> Weight:
    pids = shop.demo.pids()

    def own_mb(name: str) -> float:
        children = descendants(pids[name]) or [pids[name]]
        return max(_private_kb(pid) for pid in children) / 1024

    return Weight(own_mb("web"), own_mb("money-worker"))


def _private_kb(pid: int) -> int:
    """What the process would give back if it ended: proportional set size."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
