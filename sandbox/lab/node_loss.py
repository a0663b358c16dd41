"""A cache node that hangs, dies and comes back, and all nodes restarted: who opens how many connections."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from sandbox.control import ROOT
from sandbox.embedded import Running, start_valkey
from sandbox.lab.cache_client import POOL, THREADS
from sandbox.lab.load import LOST, Answers, crowd
from sandbox.lab.plot import lines
from sandbox.lab.report import Report, Row, Say
from sandbox.lab.shop import Shop
from sandbox.processes import spawn

NODES, CLIENTS = 4, 8
VICTIM = 2  # its place in the list: those before it are opened again and again
HANGS, GONE, BACK, RESTARTS, END = 2.0, 5.0, 6.5, 8.0, 11.0
_KINDS = {"all rebuilt": "rebuild", "ours": "keep"}
_SHOP_SECONDS = 4.0


@dataclass(frozen=True)
class _Run:
    """`opened`: (seconds, connections that the nodes have accepted so far). `pages`: (seconds, cache helped, took)."""

    opened: list[tuple[float, float]]
    pages: list[tuple[float, bool, float]]

    def opened_between(self, begin: float, end: float) -> int:
        inside = [count for at, count in self.opened if begin <= at < end]
        return int(inside[-1] - inside[0]) if inside else 0

    def p99_ms(self, begin: float, end: float) -> float:
        taken = sorted(took for at, _, took in self.pages if begin <= at < end)
        return 1000 * taken[int(0.99 * (len(taken) - 1))] if taken else 0.0

    def waited(self, begin: float, end: float) -> float:
        """The share of pages that took more than 50 ms."""
        inside = [took > 0.05 for at, _, took in self.pages if begin <= at < end]
        return sum(inside) / len(inside) if inside else 0.0

    def without_cache(self, begin: float, end: float) -> float:
        inside = [helped for at, helped, _ in self.pages if begin <= at < end]
        return 1 - sum(inside) / len(inside) if inside else 0.0


class _Counter:
    """Adds up what the nodes accept, over their restarts, in a thread of its own. Its own connections count too, one
    a node and start."""

    def __init__(self, nodes: Sequence[Running], began: float) -> None:
        self.opened: list[tuple[float, float]] = []
        self._nodes, self._began = nodes, began
        self._last = dict.fromkeys(range(len(nodes)), 0)
        self._sum = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        clients = [redis.Redis.from_url(node.url, socket_timeout=0.3, retry=None) for node in self._nodes]
        while not self._over.wait(0.1):
            for place, client in enumerate(clients):
                try:
                    stats = client.info("stats")
                except (redis.RedisError, OSError):
                    continue
                now = int(stats["total_connections_received"])
                self._sum += now - self._last[place] if now >= self._last[place] else now
                self._last[place] = now
            self.opened.append((time.monotonic() - self._began, float(self._sum)))

    def stop(self) -> None:
        self._over.set()
        self._thread.join(5)


def run(say: Say) -> Report:
    """The same eleven seconds for both clients, then the shop itself without its Valkey."""
    runs = {}
    for name, kind in _KINDS.items():
        runs[name] = done = _play(kind)
        say(f"{name}: {done.opened_between(HANGS, END)} connections opened after the first node hung")
    shop = _shop_without_valkey()
    say(f"the shop: {shop.page.statuses()[LOST]} pages lost while its Valkey hung")
    return _report(runs, shop)


def _play(kind: str) -> _Run:
    with ExitStack() as last:
        home = Path(last.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-lab-")))
        nodes = [last.enter_context(_node(home / str(number))) for number in range(NODES)]
        registry = _Registry(home / "registry.json", nodes)
        clients = [last.enter_context(_client(kind, registry.path, seed)) for seed in range(CLIENTS)]
        for client in clients:
            assert client.stdout is not None
            client.stdout.readline()
        began, wall = time.monotonic(), time.time()
        counter = _Counter(nodes, began)
        _fate(nodes, registry, began)
        counter.stop()
        pages = [page for client in clients for page in _end(client)]
    return _Run(counter.opened, [(at - wall, helped, took) for at, helped, took in pages])


class _Registry:
    """The list of nodes that all clients follow; every word of it is news, also when the list is the same."""

    def __init__(self, path: Path, nodes: Sequence[Running]) -> None:
        self.path, self._nodes, self._version = path, nodes, 0
        self.announce()

    def announce(self, without: int | None = None) -> None:
        self._version += 1
        ports = [node.port for place, node in enumerate(self._nodes) if place != without]
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps({"version": self._version, "nodes": ports}))
        fresh.replace(self.path)


def _fate(nodes: Sequence[Running], registry: _Registry, began: float) -> None:
    def at(moment: float) -> None:
        time.sleep(max(0.0, began + moment - time.monotonic()))

    steps: list[tuple[float, Callable[[], object]]] = [
        (HANGS, nodes[VICTIM].pause),
        (HANGS + 0.3, registry.announce),  # "in doubt": the list is still the same
        (GONE, nodes[VICTIM].kill),
        (GONE, lambda: registry.announce(without=VICTIM)),
        (BACK, nodes[VICTIM].start),
        (BACK + 0.2, registry.announce),
        *((RESTARTS + 0.4 * place, node.restart) for place, node in enumerate(nodes)),
        (END, lambda: None),
    ]
    for moment, step in steps:
        at(moment)
        step()


@contextmanager
def _node(home: Path) -> Iterator[Running]:
    node = start_valkey(home)
    try:
        yield node
    finally:
        node.stop()


@contextmanager
def _client(kind: str, registry: Path, seed: int) -> Iterator[subprocess.Popen[bytes]]:
    words = [sys.executable, "-m", "sandbox.lab.cache_client", kind, str(registry), str(seed)]
    process = spawn(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait(5)


def _end(client: subprocess.Popen[bytes]) -> list[tuple[float, bool, float]]:
    told, _ = client.communicate(timeout=20)
    pages: list[tuple[float, bool, float]] = json.loads(told)
    return pages


@dataclass(frozen=True)
class _ShopRun:
    page: Answers
    before: Answers
    opened: int
    clients: tuple[int, int]


def _shop_without_valkey() -> _ShopRun:
    """Pages of the real shop before and while its Valkey hangs, and what its return costs in connections."""
    with Shop({}, ("web", "worker", "money-worker", "beat")) as shop:
        url, broker = shop.demo.url, redis.Redis.from_url(shop.demo.env["BROKER_URL"])
        crowd(url, [("/", 10.0)], 1.0)
        before = crowd(url, [("/", 20.0)], 2.0)["/"]
        connected, accepted = _settled(broker)
        pid = shop.demo.pids()["Valkey"]
        os.kill(pid, signal.SIGSTOP)
        try:
            page = crowd(url, [("/", 20.0)], _SHOP_SECONDS)["/"]
        finally:
            os.kill(pid, signal.SIGCONT)
        time.sleep(2)
        after, now = _settled(broker)
        broker.close()
    return _ShopRun(page, before, now - accepted, (connected, after))


def _settled(broker: redis.Redis) -> tuple[int, int]:
    """`_clients`, once the same number is connected for two seconds; within ten."""
    same, told = 0, _clients(broker)
    for _ in range(20):
        time.sleep(0.5)
        before, told = told, _clients(broker)
        same = same + 1 if told[0] == before[0] else 0
        if same == 4:
            break
    return told


def _clients(broker: redis.Redis) -> tuple[int, int]:
    """Connected now, accepted so far."""
    told = broker.info()
    return int(told["connected_clients"]), int(told["total_connections_received"])


def _rows(name: str, done: _Run) -> Iterator[Row]:
    """One kind of client."""
    ours, whole, most = name == "ours", CLIENTS * NODES * POOL, CLIENTS * THREADS * 3
    lost, restarts = done.opened_between(HANGS, RESTARTS), done.opened_between(RESTARTS, END)
    waited, without = done.waited(HANGS, GONE), done.without_cache(END - 1, END)
    yield Row(
        f"{name}: connections opened by one node lost and back",
        "" if ours else "100 000 a minute",
        str(lost),
        f"at most {most}" if ours else f"more than all pools hold, {whole}",
        lost <= most if ours else lost > whole,
    )
    bound = f"at most {whole}" if ours else ""
    yield Row(f"{name}: by all nodes restarted", "", str(restarts), bound, not ours or restarts <= whole)
    few = "below 10 %" if ours else ""
    slow = f"{name}: pages that waited for it, over 50 ms"
    yield Row(slow, "", f"{waited:.1%}", few, not ours or waited < 0.1)
    yield Row(f"{name}: page p99 while it hung, ms", "", f"{done.p99_ms(HANGS, GONE):.0f}")
    yield Row(
        f"{name}: pages without their cache while it hung", "", f"{done.without_cache(HANGS, GONE):.0%}"
    )
    end = f"{name}: pages without their cache in the end"
    yield Row(end, "", f"{without:.1%}", "below 5 %" if ours else "", not ours or without < 0.05)


def _shop_rows(shop: _ShopRun) -> Iterator[Row]:
    before, during = shop.before.milliseconds(0.5), shop.page.milliseconds(0.5)
    statuses = shop.page.statuses()
    fine = set(statuses) == {200}
    yield Row(
        "the shop, its Valkey hung: pages lost", "half of them", str(statuses[LOST]), "0, all 200", fine
    )
    yield Row(
        "the shop: page p50 before and meanwhile, ms",
        "",
        f"{before:.0f}, {during:.0f}",
        "at most 100 more",
        during <= before + 100,
    )
    opened = shop.opened
    yield Row("the shop: connections opened by its return", "", str(opened), "at most 40", opened <= 40)
    yield Row(
        "the shop: connections before and after",
        "",
        f"{shop.clients[0]}, {shop.clients[1]}",
        "at most 5 more",
        shop.clients[1] <= shop.clients[0] + 5,
    )


def _report(runs: dict[str, _Run], shop: _ShopRun) -> Report:
    rows = [row for name, done in runs.items() for row in _rows(name, done)]
    curves = {name: done.opened for name, done in runs.items()}
    spans = [(HANGS, GONE, "one hangs"), (RESTARTS, END, "all restarted")]
    return Report(
        "node-loss",
        "one cache node lost, and the connections that this opens",
        (*rows, *_shop_rows(shop)),
        {
            "node-loss": lines(
                "Connections the nodes have accepted", "seconds", "connections", curves, spans=spans
            )
        },
        {name: {"opened": done.opened} for name, done in runs.items()},
    )
