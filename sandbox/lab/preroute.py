"""A load balancer that takes two seconds to notice: requests that arrive at a server that has been told to stop."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass

from sandbox.lab.plot import bars
from sandbox.lab.report import Report, Row, Say
from sandbox.lab.shop import Shop
from sandbox.lab.shutdown import SLOW_CHECKOUTS, Stop, keep_asking, prepared_checkout

REMOVED_AFTER = 2.0
IN_FLIGHT_MS = 3000
PAID = "302"


@dataclass(frozen=True)
class _Case:
    drain: str
    grace: str
    source_failed: str
    source_last: str
    last: str  # what must become of the last checkout
    all_fail: bool


CASES = {
    "no drain": _Case("0", "20", "157 to 162 of as many", "refused", "refused", True),
    "no drain, no grace": _Case("0", "0", "149 of 149", "refused", "refused", True),
    "drain 3 s, no grace": _Case("3", "0", "0 of 122", "cut off", "cut off", False),
    "drain 3 s": _Case("3", "20", "0 of 124", "200 after 3.0 s", PAID, False),
}


@dataclass(frozen=True)
class _Seen:
    answers: Counter[str]
    last: str
    code: int

    @property
    def failed(self) -> int:
        return self.answers.total() - self.answers["200"]


def run(say: Say) -> Report:
    """A request every 13 ms until two seconds after the signal, and a checkout of 3 s sent at 1.9 s."""
    found: dict[str, _Seen] = {}
    with Shop(SLOW_CHECKOUTS) as shop:
        shop.gateway.break_with({"latency_ms": IN_FLIGHT_MS}, method="POST")
        for name, case in CASES.items():
            found[name] = seen = _play(shop, case)
            say(f"{name}: {seen.failed} of {seen.answers.total()} failed, the last checkout: {seen.last}")
    return _report(found)


def _play(shop: Shop, case: _Case) -> _Seen:
    web = shop.web(DRAIN_SECONDS=case.drain, GRACE_SECONDS=case.grace)
    submit = prepared_checkout(web.url)
    last: list[str] = []
    stop = Stop(web.process)

    def late() -> None:
        time.sleep(max(0.0, stop.at + REMOVED_AFTER - 0.1 - time.monotonic()))
        last.append(submit())

    shopper = threading.Thread(target=late)
    shopper.start()
    answers = keep_asking(web.url, REMOVED_AFTER)
    code, _ = stop.wait()
    shopper.join(90)
    return _Seen(answers, last[0], code)


def _report(found: dict[str, _Seen]) -> Report:
    rows: list[Row] = []
    for name, seen in found.items():
        case = CASES[name]
        total = seen.answers.total()
        rows += [
            Row(
                f"{name}: requests failed",
                case.source_failed,
                f"{seen.failed} of {total}",
                "nine in ten at least" if case.all_fail else "0",
                seen.failed >= 0.9 * total if case.all_fail else seen.failed == 0,
            ),
            Row(
                f"{name}: checkout of 3 s at 1.9 s",
                case.source_last,
                seen.last,
                case.last,
                seen.last == case.last,
            ),
            Row(f"{name}: exit code", "143", str(seen.code), "0", seen.code == 0),
        ]
    groups = [(name, {"failed": float(seen.failed)}) for name, seen in found.items()]
    return Report(
        "preroute",
        "149 to 162 requests for a server that has already gone",
        tuple(rows),
        {"preroute": bars("Requests failed in the 2 s until the load balancer notices", "", groups)},
        {name: dict(seen.answers) for name, seen in found.items()},
    )
