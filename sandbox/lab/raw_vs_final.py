"""The same run counted twice: every refusal of a layer, and the tasks that were refused in the end."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from resilience.chain import Chain, ChainSnapshot
from resilience.deadline import Deadline
from resilience.errors import BreakerOpen, BulkheadFull, RateLimited, ResilienceError
from sandbox.control import start_neighbour
from sandbox.lab.downstream import ATTEMPTS, BACKOFF, Downstream, chain, submit
from sandbox.lab.plot import bars
from sandbox.lab.report import Report, Row, Say

TASKS = 632
OUTAGE = 5.0

Way = Callable[[Chain, Downstream, float], None]


@dataclass(frozen=True)
class _Count:
    """One run. `final`: tasks by how they ended, "succeeded" or the class of their error."""

    raw: ChainSnapshot
    final: Counter[str]
    arrived: int


def run(say: Say, pace: float = 0.2, tasks: int = TASKS) -> Report:
    """95 s of the story, twice. `pace`: how many seconds one of it takes."""
    say("every failure repeated, refusals too, as the source does")
    theirs = _play(_repeats_refusals, pace, tasks)
    say("the chain as shipped: a refusal is never repeated")
    ours = _play(_as_shipped, pace, tasks)
    return _report(theirs, ours, tasks)


def _repeats_refusals(protected: Chain, neighbour: Downstream, pace: float) -> None:
    """All layers are asked again for anything but an open breaker."""
    for attempt in range(ATTEMPTS):
        try:
            with protected.attempt(deadline=Deadline.after_ms(60_000)) as deadline:
                neighbour.call(deadline)
            return
        except BreakerOpen:
            raise
        except ResilienceError:
            if attempt + 1 == ATTEMPTS:
                raise
        time.sleep(BACKOFF * pace * 2**attempt)


def _as_shipped(protected: Chain, neighbour: Downstream, pace: float) -> None:
    protected.call(neighbour.call, deadline=Deadline.after_ms(60_000), repeatable=True)


def _play(way: Way, pace: float, tasks: int) -> _Count:
    final: Counter[str] = Counter()
    lock = threading.Lock()
    with start_neighbour("gateway") as gateway:
        neighbour, protected = Downstream(gateway, pace), chain(pace)
        neighbour.fail()

        def task() -> None:
            try:
                way(protected, neighbour, pace)
                end = "succeeded"
            except ResilienceError as error:
                end = type(error).__name__
            with lock:
                final[end] += 1

        healing = threading.Timer(OUTAGE * pace, neighbour.recover)
        healing.start()
        submit(task, tasks, pace)
        healing.join()
        return _Count(protected.snapshot(), final, len(neighbour.arrivals))


_LIMITER, _BULKHEAD, _BREAKER = (kind.__name__ for kind in (RateLimited, BulkheadFull, BreakerOpen))
_REPEATED = "refusals repeated"


def _theirs(count: _Count) -> tuple[Row, ...]:
    """With every refusal repeated, beside the source's figures."""
    raw, final = count.raw.rejected_by_limiter, count.final[_LIMITER]
    return (
        Row(f"{_REPEATED}: limiter, raw", "738", str(raw)),
        Row(f"{_REPEATED}: limiter, final", "202", str(final), "less than half of raw", final < raw / 2),
        Row(f"{_REPEATED}: bulkhead, raw", "33", str(count.raw.rejected_by_bulkhead)),
        Row(f"{_REPEATED}: bulkhead, final", "10", str(count.final[_BULKHEAD])),
        Row(f"{_REPEATED}: refused by the breaker", "42", str(count.final[_BREAKER])),
        Row(f"{_REPEATED}: succeeded", "377", str(count.final["succeeded"])),
        Row(f"{_REPEATED}: calls the neighbour saw", "423", str(count.arrived)),
    )


def _ours(count: _Count) -> tuple[Row, ...]:
    """As shipped: a layer's refusal ends its call."""
    raw = (count.raw.rejected_by_limiter, count.raw.rejected_by_bulkhead)
    final = (count.final[_LIMITER], count.final[_BULKHEAD])
    return (
        Row("as shipped: limiter, raw", "", str(raw[0])),
        Row("as shipped: limiter, final", "", str(final[0]), "the same", raw[0] == final[0]),
        Row("as shipped: bulkhead, raw", "", str(raw[1])),
        Row("as shipped: bulkhead, final", "", str(final[1]), "the same", raw[1] == final[1]),
        Row("as shipped: refused by the breaker", "", str(count.final[_BREAKER])),
        Row("as shipped: succeeded", "", str(count.final["succeeded"])),
        Row("as shipped: calls the neighbour saw", "", str(count.arrived)),
    )


def _report(theirs: _Count, ours: _Count, tasks: int) -> Report:
    ended = theirs.final.total() == ours.final.total() == tasks
    share = [count.final["succeeded"] / max(1, tasks - count.final[_BREAKER]) for count in (theirs, ours)]
    rows = (
        Row("tasks", "632", str(tasks), "each ended once", ended),
        *_theirs(theirs),
        *_ours(ours),
        Row(
            "succeeded of those that the breaker let in",
            "64 %",
            f"{share[0]:.0%}, as shipped {share[1]:.0%}",
            "no less than nine tenths of the first",
            share[1] >= 0.9 * share[0],
        ),
    )
    groups = [
        (name, {"raw": float(count.raw.rejected_by_limiter), "final": float(count.final[_LIMITER])})
        for name, count in ((_REPEATED, theirs), ("as shipped", ours))
    ]
    return Report(
        "raw-vs-final",
        "refusals counted in the layer, and refusals that a caller felt",
        rows,
        {"raw-vs-final": bars("Refusals of the rate limiter in one run of 632 tasks", "", groups)},
        {"repeated": dict(theirs.final), "shipped": dict(ours.final)},
    )
