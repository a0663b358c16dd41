"""One process of a service that keeps a part of its pages in several cache nodes: `python -m sandbox.lab.cache_client`.

Asks at a steady pace until its standard input ends, then prints one JSON object. The list of nodes is a file that
somebody rewrites, as a registry of services would; every process reads the new one within the same tenth of a second.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import redis

from resilience.breaker import BreakerPolicy, CircuitBreaker
from resilience.errors import ResilienceError

POOL = 10
THREADS = 4
PAUSE = 0.04
TIMEOUT = 0.1
_LOOK = 0.1
_WITHOUT_CACHE = 0.002  # what the page costs when the cache does not help


class RebuildsAll:
    """The source's client. At any news of the registry it opens everything anew and fills each pool before it is used,
    twice over by a line that was not needed. A node that does not answer ends the attempt half way; what was opened
    by then stays open, the old pools stay in use, and a moment later it tries again."""

    def __init__(self) -> None:
        self._pools: dict[int, Any] = {}
        self._known = -1
        self._opened: list[object] = []

    def news(self, version: int, ports: list[int]) -> None:
        if version == self._known:
            return
        fresh: dict[int, Any] = {}
        self._opened.append(fresh)
        for port in ports:
            fresh[port] = pool = _pool(redis.ConnectionPool, port, max_connections=100_000)
            filled = [pool.get_connection() for _ in range(2 * POOL)]
            for connection in filled:
                pool.release(connection)
        old, self._pools, self._known = self._pools, fresh, version
        for pool in old.values():
            pool.disconnect()

    def get(self, key: str) -> object:
        pools = self._pools
        return redis.Redis(connection_pool=pools[_place(key, pools)]).get(key)


class KeepsWhatWorks:
    """Ours: a bounded pool and a breaker for each node, made and dropped with that node alone; connections are opened
    when they are needed, and a node that does not answer is left alone for a second."""

    def __init__(self) -> None:
        self._nodes: dict[int, tuple[redis.Redis, CircuitBreaker]] = {}

    def news(self, version: int, ports: list[int]) -> None:
        kept = {port: self._nodes.get(port) or self._node(port) for port in ports}
        gone = set(self._nodes) - set(kept)
        old, self._nodes = self._nodes, kept
        for port in gone:
            old[port][0].close()

    def _node(self, port: int) -> tuple[redis.Redis, CircuitBreaker]:
        pool = _pool(redis.BlockingConnectionPool, port, max_connections=POOL, timeout=0.05)
        policy = BreakerPolicy(window=10, min_calls=5, open_seconds=1.0, half_open_calls=1)
        return redis.Redis(connection_pool=pool), CircuitBreaker(policy, name=str(port))

    def get(self, key: str) -> object:
        nodes = self._nodes
        client, breaker = nodes[_place(key, nodes)]
        return breaker.call(lambda: client.get(key))


def _pool(kind: Callable[..., Any], port: int, **bounds: Any) -> Any:
    return kind(
        host="127.0.0.1",
        port=port,
        socket_timeout=TIMEOUT,
        socket_connect_timeout=TIMEOUT,
        retry=None,
        **bounds,
    )


def _place(key: str, nodes: Mapping[int, object]) -> int:
    """The node of a key."""
    return sorted(nodes)[zlib.crc32(key.encode()) % len(nodes)]


def _tell(client: RebuildsAll | KeepsWhatWorks, registry: Path) -> None:
    told = json.loads(registry.read_text())
    client.news(told["version"], told["nodes"])


KINDS: dict[str, type[RebuildsAll | KeepsWhatWorks]] = {"rebuild": RebuildsAll, "keep": KeepsWhatWorks}


def main(kind: str, registry: Path, seed: int) -> None:
    client, over = KINDS[kind](), threading.Event()
    _tell(client, registry)
    pages: list[tuple[float, bool, float]] = []

    def follow() -> None:
        while not over.wait(_LOOK):
            try:
                _tell(client, registry)
            except (redis.RedisError, OSError, ValueError):
                continue

    def browse(number: int) -> None:
        turn = 0
        while not over.wait(PAUSE):
            turn += 1
            begun = time.time()
            try:
                client.get(f"page-{seed}-{number}-{turn % 50}")
                helped = True
            except (redis.RedisError, ResilienceError, OSError):
                helped = False
                time.sleep(_WITHOUT_CACHE)
            pages.append((begun, helped, time.time() - begun))

    threads = [threading.Thread(target=follow, daemon=True)]
    threads += [threading.Thread(target=browse, args=(number,), daemon=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    sys.stdin.read()
    over.set()
    threads[-1].join(2)
    print(json.dumps(pages), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
