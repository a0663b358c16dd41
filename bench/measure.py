"""How it is measured: all subjects in turn, round after round, so that a slow moment hits everybody."""

from __future__ import annotations

import gc
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from itertools import repeat

Call = Callable[[], object]


def nanoseconds(call: Call, times: int) -> float:
    """Mean of one call over `times` of them, in time on the processor: waiting for it is not the call's cost."""
    started = time.thread_time_ns()
    for _ in repeat(None, times):
        call()
    return (time.thread_time_ns() - started) / times


def medians(calls: Mapping[str, Call], *, rounds: int = 31, seconds: float = 0.01) -> dict[str, float]:
    """Median nanoseconds of each call, over rounds in which each runs for about `seconds`."""
    times = {name: max(100, int(seconds * 1e9 / nanoseconds(call, 300))) for name, call in calls.items()}
    found: dict[str, list[float]] = {name: [] for name in calls}
    gc.collect()
    gc.freeze()
    for _ in range(rounds):
        for name, call in calls.items():
            found[name].append(nanoseconds(call, times[name]))
    gc.unfreeze()
    return {name: statistics.median(values) for name, values in found.items()}


def per_second(call: Call, threads: int, seconds: float = 0.4) -> float:
    """Calls per second of so many threads together."""
    stop = threading.Event()
    done = [0] * threads

    def work(place: int) -> None:
        count = 0
        while not stop.is_set():
            for _ in range(50):
                call()
            count += 50
        done[place] = count

    workers = [threading.Thread(target=work, args=(place,)) for place in range(threads)]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    time.sleep(seconds)
    stop.set()
    for worker in workers:
        worker.join()
    return sum(done) / (time.perf_counter() - started)


def throughputs(calls: Mapping[str, Call], threads: int = 8, rounds: int = 3) -> dict[str, float]:
    """Median calls per second of each, in turn."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            found[name].append(per_second(call, threads))
    return {name: statistics.median(values) for name, values in found.items()}
