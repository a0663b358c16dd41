"""A gateway that hangs, and what each layer changes: threads held, and an unrelated page's latency."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from resilience.budget import doubling_pauses_ms, seconds_until_open, threads_held, worst_case_ms
from sandbox.control import ROOT, Started, start_neighbour
from sandbox.lab.load import LOST, Answers, ask, crowd
from sandbox.lab.plot import lines
from sandbox.lab.report import Report, Row, Say
from sandbox.lab.storefront import Layers
from sandbox.processes import descendants, free_port, last_lines, send, spawn

THREADS, TIMEOUT, BULKHEAD = 200, 5.0, 20
RPS = 48.0  # the source's 40 × 5 s are exactly its 200 threads; a little more shows what happens then
PAGES = 10.0
SECONDS = 11.0
PATIENCE = 10.0
DERIVED = 0.24  # what this shop's budget gives a payment
NONE, TIMEOUTS, BREAKER, ALL, COUNTED, OURS = (
    "nothing",
    "timeouts of 5 s",
    "+ breaker",
    "+ bulkhead of 20",
    "the same, own refusals counted",
    "as this shop: 240 ms",
)
_VARIANTS = {
    NONE: Layers(600.0),
    TIMEOUTS: Layers(TIMEOUT),
    BREAKER: Layers(TIMEOUT, breaker=True),
    ALL: Layers(TIMEOUT, breaker=True, bulkhead=BULKHEAD),
    COUNTED: Layers(TIMEOUT, breaker=True, bulkhead=BULKHEAD, count_refusals=True),
    OURS: Layers(DERIVED, breaker=True, bulkhead=BULKHEAD),
}


@dataclass(frozen=True)
class _Run:
    """`busy`: (seconds, threads in the payment). `opened`: when the breaker did, None if it did not."""

    paying: Answers
    page: Answers
    busy: list[tuple[float, float]]
    opened: float | None

    @property
    def most_busy(self) -> int:
        return int(max(threads for _, threads in self.busy))

    @property
    def page_ms(self) -> float:
        return self.page.milliseconds(0.95)


def run(say: Say) -> Report:
    """One web server after the other, each with 200 threads and one more layer."""
    runs: dict[str, _Run] = {}
    with start_neighbour("gateway") as gateway:
        gateway.break_with({"hang": True})
        for name, layers in _VARIANTS.items():
            runs[name] = done = _play(layers, gateway)
            gateway.break_with({"hang": True})  # ends what still hangs
            opened = "never" if done.opened is None else f"after {done.opened:.2f} s"
            say(
                f"{name}: {done.most_busy} threads at most, page p95 {done.page_ms:.0f} ms, breaker opens {opened}"
            )
    return _report(runs)


def _play(layers: Layers, gateway: Started) -> _Run:
    with tempfile.TemporaryDirectory(prefix="holdfast-lab-") as home:
        log = Path(home) / "busy.log"
        with _web(layers.environment(gateway.url, log)) as url:
            heard = crowd(url, [("/pay", RPS), ("/page", PAGES)], SECONDS, PATIENCE)
        noted = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("]")]
    busy = [(at, float(value)) for what, at, value in noted if what == "busy" and at <= SECONDS]
    opened = [at for what, at, value in noted if what == "breaker" and value.endswith("to OPEN")]
    return _Run(heard["/pay"], heard["/page"], busy, opened[0] if opened else None)


@contextmanager
def _web(environment: dict[str, str]) -> Iterator[str]:
    """gunicorn with one process of 200 threads; its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    words = ["-k", "gthread", "--threads", str(THREADS), "--backlog", "2048", "--no-control-socket"]
    words += ["-b", f"127.0.0.1:{port}", "sandbox.lab.storefront"]
    log = Path(environment["LAB_LOG"]).with_name("web.log")
    process = spawn(
        [sys.executable, "-m", "gunicorn", *words], env={**os.environ, **environment}, cwd=ROOT, log=log
    )
    try:
        give_up = time.monotonic() + 20
        while ask(url, "/page", patience=1.0)[0] != 200:
            if time.monotonic() > give_up:
                raise RuntimeError(f"the web server does not answer: {last_lines(log)}")
            time.sleep(0.05)
        yield url
    finally:
        send([process.pid, *descendants(process.pid)], signal.SIGKILL)
        process.wait(5)


def _rows(name: str, done: _Run) -> Iterator[Row]:
    """One set of layers."""
    bound = {ALL: BULKHEAD, COUNTED: BULKHEAD, OURS: BULKHEAD}.get(name)
    theirs = {NONE: "200", TIMEOUTS: "200", BREAKER: "200, for 5 s", ALL: "20"}.get(name, "")
    expected = f"at most {bound}" if bound else "all of them"
    good = done.most_busy <= bound if bound else done.most_busy >= 0.97 * THREADS
    yield Row(f"{name}: threads held at most", theirs, str(done.most_busy), expected, good)
    heard = sorted(done.paying.statuses().items())
    told = ", ".join(f"{count} × {status or 'no answer'}" for status, count in heard)
    yield Row(f"{name}: what payers got", "", told)
    lost = done.page.statuses()[LOST]
    yield Row(
        f"{name}: unrelated page, p50 / p95 ms, lost",
        "",
        f"{done.page.median_ms():.0f} / {done.page_ms:.0f}, {lost}",
        "p95 below 250 ms, none lost" if bound else "",
        not bound or (done.page_ms < 250 and not lost),
    )


def _report(runs: dict[str, _Run]) -> Report:
    rows = [_arithmetic(), *(row for name, done in runs.items() for row in _rows(name, done))]
    rows += _opening(runs)
    return Report(
        "exhaustion",
        "a hung gateway and 200 threads",
        tuple(rows),
        {
            "exhaustion": lines(
                "Threads held by payments while the gateway hangs",
                "seconds",
                "threads",
                {name: runs[name].busy for name in (TIMEOUTS, BREAKER, ALL, OURS)},
            )
        },
        {name: {"busy": done.busy, "opened": done.opened} for name, done in runs.items()},
    )


def _arithmetic() -> Row:
    seconds = worst_case_ms(3, 5000, doubling_pauses_ms(3, 1000)) / 1000
    held = threads_held(40, seconds)
    return Row(
        "threads for 40 a second, 3 × 5 s and pauses of 1 s and 2 s",
        "18 s, 720",
        f"{seconds:g} s, {held:g}",
        "the same",
        (seconds, held) == (18, 720),
    )


def _opening(runs: dict[str, _Run]) -> Iterator[Row]:
    """When the breaker opens: our own refusals as failures or not."""
    reckoned = seconds_until_open(10, RPS, TIMEOUT, BULKHEAD)
    counted, plain = runs[COUNTED].opened, runs[ALL].opened
    yield Row(
        "breaker opens, own refusals counted, s",
        "below 1",
        "never" if counted is None else f"{counted:.2f}",
        "below 1",
        counted is not None and counted < 1,
    )
    yield Row(
        "breaker opens, own refusals not counted, s",
        "5",
        "never" if plain is None else f"{plain:.2f}",
        f"{reckoned:.2f} by arithmetic, within 0.5",
        plain is not None and abs(plain - reckoned) < 0.5,
    )
