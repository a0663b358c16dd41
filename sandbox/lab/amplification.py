"""A deadline that is not handed on: services finish, honestly, what nobody waits for any more."""

from __future__ import annotations

import random
import statistics
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from resilience.deadline import Deadline
from resilience.errors import ResilienceError
from resilience.http import HttpPolicy, HttpSession, request_id
from sandbox.control import Started, start_neighbour
from sandbox.lab.plot import bars
from sandbox.lab.report import Report, Row, Say

BUDGET_MS = 300
WORK_MS = 50
REQUESTS = 120
EVERY = 0.025
SLOWEST_MS = 300
"""The first service's queue delays each request by up to so much: about half of them have no chance then."""
_NAMES = ("first", "second", "third")


@dataclass(frozen=True)
class _Run:
    """One run: how many callers were answered in time, the work for nobody, and how long the others waited."""

    answered: int
    in_vain: dict[str, int]
    work: dict[str, int]
    refused_after_ms: float

    @property
    def wasted_ms(self) -> int:
        return sum(self.in_vain.values()) * WORK_MS


def run(say: Say, requests: int = REQUESTS) -> Report:
    """Twice the same requests, with the same delays: without and with the deadline handed on."""
    without = _play(requests, inherit=False)
    say(f"deadline kept to oneself: {without.in_vain['third']} times the third service worked for nobody")
    handed_on = _play(requests, inherit=True)
    say(f"deadline handed on: {handed_on.in_vain['third']} times")
    return _report(without, handed_on, requests)


def _play(requests: int, *, inherit: bool) -> _Run:
    dice = random.Random(8)
    delays = [dice.uniform(0, SLOWEST_MS) for _ in range(requests)]
    with ExitStack() as last:
        services: list[Started] = []
        for _ in _NAMES:  # the last one first: each has to know the next one's address
            options = ["--work-ms", str(WORK_MS), "--timeout-ms", str(BUDGET_MS)]
            options += ["--next", services[-1].url] if services else []
            options += ["--inherit"] if inherit else []
            services.append(last.enter_context(start_neighbour("lab.relay", *options)))
        session = _session(services[-1].url)
        begun = time.monotonic()

        def ask(number: int) -> tuple[str, bool, float]:
            time.sleep(max(0.0, begun + number * EVERY - time.monotonic()))
            return _ask(session, delays[number])

        with ThreadPoolExecutor(40) as pool:
            ends = list(pool.map(ask, range(requests)))
        session.close()
        time.sleep(2 * BUDGET_MS / 1000)  # what goes on without its callers comes to its end
        lost = {name for name, answered, _ in ends if not answered}
        worked = [service.call("GET", "/_sandbox/work") for service in reversed(services)]
    return _Run(
        answered=requests - len(lost),
        in_vain={name: len(lost & set(ids)) for name, ids in zip(_NAMES, worked, strict=True)},
        work={name: len(ids) for name, ids in zip(_NAMES, worked, strict=True)},
        refused_after_ms=1000 * statistics.median(took for _, answered, took in ends if not answered),
    )


def _session(url: str) -> HttpSession:
    seconds = BUDGET_MS / 1000
    return HttpSession(
        HttpPolicy(
            url,
            connect_timeout=seconds,
            read_timeout=seconds,
            call_timeout=seconds,
            pool_wait=seconds,
            pool_size=60,
        )
    )


def _ask(session: HttpSession, delay_ms: float) -> tuple[str, bool, float]:
    """Its id, whether it was answered in time, and the seconds until the caller knew."""
    name = uuid.uuid4().hex
    token = request_id.set(name)
    begun = time.monotonic()
    try:
        session.request("GET", f"/?wait_ms={delay_ms:.0f}", deadline=Deadline.after_ms(BUDGET_MS))
        answered = True
    except ResilienceError:
        answered = False
    finally:
        request_id.reset(token)
    return name, answered, time.monotonic() - begun


def _rows(word: str, run_: _Run, requests: int) -> Iterator[Row]:
    """One of the two runs. With the deadline handed on, the last service works for nobody in hardly any case."""
    for name in _NAMES:
        worked, vain = run_.work[name], run_.in_vain[name]
        best = word == "handed on" and name == "third"
        few = worked // 20
        yield Row(
            f"{word}: worked by the {name} service, of these for nobody",
            "",
            f"{worked}, {vain}",
            f"at most {few} for nobody" if best else "",
            not best or vain <= few,
        )
    yield Row(f"{word}: callers answered within {BUDGET_MS} ms", "", f"{run_.answered} of {requests}")
    yield Row(f"{word}: the others knew after, median ms", "", f"{run_.refused_after_ms:.0f}")
    yield Row(f"{word}: work for nobody, ms", "", str(run_.wasted_ms))


def _report(without: _Run, handed_on: _Run, requests: int) -> Report:
    rows = [*_rows("kept to oneself", without, requests), *_rows("handed on", handed_on, requests)]
    rows.append(
        Row(
            "work for nobody, handed on ÷ kept",
            "",
            f"{handed_on.wasted_ms / max(1, without.wasted_ms):.2f}",
            "at most 0.6",
            handed_on.wasted_ms <= 0.6 * without.wasted_ms,
        )
    )
    groups = [
        (
            f"{name} service",
            {"deadline kept": float(without.in_vain[name]), "handed on": float(handed_on.in_vain[name])},
        )
        for name in _NAMES
    ]
    return Report(
        "amplification",
        "work done for callers who have left",
        tuple(rows),
        {"amplification": bars("Requests worked on whose caller had no use of it", "", groups)},
        {"kept": without.in_vain, "handed_on": handed_on.in_vain, "requests": requests},
    )
