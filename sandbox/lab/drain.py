"""A web server is told to stop with a checkout in flight: what becomes of it, and of those who come now."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from sandbox.lab.plot import strip
from sandbox.lab.report import Report, Row, Say
from sandbox.lab.shop import Shop, Web, wait_until
from sandbox.lab.shutdown import SLOW_CHECKOUTS, Stop, ask, ask_anew, checkout_in_flight, connect

IN_FLIGHT_MS = 3000
PAID = "302"  # the redirect to the order's page
_GONE = "ConnectionRefusedError"
_WORDS = (
    "checkout in flight",
    "new connection after 0.3 s",
    "kept-alive after 0.3 s",
    "exit after",
    "exit code",
)
_COLOURS = {"draining": "#8a5a10", "finishing": "#0d5566"}


@dataclass(frozen=True)
class _Case:
    """One way to stop. `source`: what the story measured: in flight, new connection, kept alive, exit, code."""

    settings: dict[str, str]
    source: tuple[str, str, str, str, str]
    expected: tuple[str, str]  # the checkout in flight, and a new connection
    least: float
    most: float
    twice: bool = False


@dataclass
class _Stopped:
    """What was seen. Times in seconds since the signal; `ready_503` None if readiness never said so."""

    in_flight: str = ""
    new: str = ""
    kept: str = ""
    code: int = -1
    exit: float = 0.0
    ready_503: float | None = None
    listened: float = 0.0
    case: _Case | None = field(default=None, repr=False)


_REFUSED, _CUT = "refused", "cut off"
CASES = {
    "drain 3 s (the default is 5)": _Case(
        {"DRAIN_SECONDS": "3"}, ("", "", "", "", ""), (PAID, "200"), 3.0, 8.0
    ),
    "no drain": _Case(
        {"DRAIN_SECONDS": "0"}, ("200 after 3.0 s", _REFUSED, _CUT, "2.6 s", "143"), (PAID, _GONE), 1.5, 7.0
    ),
    "no drain, second signal after 0.5 s": _Case(
        {"DRAIN_SECONDS": "0"}, (_CUT, _REFUSED, _CUT, "0.3 s", "143"), (_CUT, _GONE), 0.4, 3.0, twice=True
    ),
    "no drain, grace of 1 s": _Case(
        {"DRAIN_SECONDS": "0", "GRACE_SECONDS": "1"},
        (_CUT, _REFUSED, _CUT, "1.1 s", "143"),
        (_CUT, _GONE),
        0.9,
        4.0,
    ),
}
LONG = "a checkout without end, drain 5 s, grace 20 s"
_LONG = _Case(
    {"DRAIN_SECONDS": "5", "GRACE_SECONDS": "20"},
    (_CUT, _REFUSED, _CUT, "30.1 s", "143"),
    (_CUT, "200"),
    24,
    33,
)


def run(say: Say) -> Report:
    """Four servers side by side, then one with a checkout that outlives every patience."""
    settings = {
        **SLOW_CHECKOUTS,
        "GRACE_SECONDS": "20",
        "TICK_SECONDS": "0.5",
        "OUTBOX_RETRY_MAX_SECONDS": "2",
    }
    with Shop(settings, ("web", "worker", "money-worker", "beat")) as shop:
        with ThreadPoolExecutor(len(CASES)) as pool:
            webs = list(pool.map(lambda case: shop.web(**case.settings), CASES.values()))
            shop.gateway.break_with({"latency_ms": IN_FLIGHT_MS}, method="POST")
            found = dict(
                zip(
                    CASES,
                    pool.map(lambda pair: _stop(shop, *pair), zip(webs, CASES.values(), strict=True)),
                    strict=True,
                )
            )
        for name, seen in found.items():
            say(f"{name}: checkout {seen.in_flight}, exit after {seen.exit:.1f} s with {seen.code}")
        web = shop.web(**_LONG.settings)
        shop.gateway.break_with({"hang": True}, method="POST")
        found[LONG] = _stop(shop, web, _LONG)
        say(f"{LONG}: checkout {found[LONG].in_flight}, exit after {found[LONG].exit:.1f} s")
        shop.gateway.heal()
        shop.sql("UPDATE orders_outboxmessage SET available_at = now() WHERE kind = 'charge'")
        paid = _all_paid(shop)
        violations = shop.violations()
    return _report(found, paid, violations)


def _stop(shop: Shop, web: Web, case: _Case) -> _Stopped:
    kept = connect(web.url)
    ask(kept)
    checkout = checkout_in_flight(web.url, shop.gateway)
    seen = _Stopped(case=case)
    stop = Stop(web.process)
    watching = threading.Thread(target=_watch, args=(web, stop, seen))
    watching.start()
    time.sleep(max(0.0, stop.at + 0.3 - time.monotonic()))
    seen.new, seen.kept = ask_anew(web.url), ask(kept)
    if case.twice:
        time.sleep(max(0.0, stop.at + 0.5 - time.monotonic()))
        stop.again()
    seen.code, seen.exit = stop.wait()
    seen.in_flight = checkout.result(60)
    watching.join(60)
    return seen


def _watch(web: Web, stop: Stop, seen: _Stopped) -> None:
    """When readiness turned, and until when the door was open."""
    while web.process.poll() is None:
        answer = ask_anew(web.url, "/health/ready/")
        since = time.monotonic() - stop.at
        if answer == "503" and seen.ready_503 is None:
            seen.ready_503 = since
        if not answer.isdigit():
            return
        seen.listened = since
        time.sleep(0.02)


def _all_paid(shop: Shop) -> tuple[int, int]:
    """Orders, and how many of them are paid in the end."""

    def count() -> tuple[int, int]:
        ((orders, paid),) = shop.sql(
            "SELECT count(*), count(*) FILTER (WHERE status = 'PAID') FROM orders_order"
        )
        return orders, paid

    def all_paid() -> bool:
        orders, paid = count()
        return orders == paid

    with contextlib.suppress(TimeoutError):
        wait_until(all_paid, 30)
    return count()


def _rows(name: str, seen: _Stopped) -> list[Row]:
    """One way to stop, beside the source's."""
    case = seen.case
    assert case is not None
    told = (seen.in_flight, seen.new, seen.kept, f"{seen.exit:.1f} s", str(seen.code))
    good = (
        seen.in_flight == case.expected[0],
        seen.new == case.expected[1],
        True,
        case.least <= seen.exit <= case.most,
        seen.code == 0,
    )
    wanted = (*case.expected, "", f"{case.least:g} to {case.most:g} s", "0")
    return [
        Row(f"{name}: {word}", theirs, ours, need, fine)
        for word, theirs, ours, need, fine in zip(_WORDS, case.source, told, wanted, good, strict=True)
    ]


def _report(found: dict[str, _Stopped], paid: tuple[int, int], violations: list[str]) -> Report:
    rows = [row for name, seen in found.items() for row in _rows(name, seen)]
    first = next(iter(found.values()))
    ready = first.ready_503
    told = "never" if ready is None else f"{ready:.2f} s"
    good = ready is not None and ready < 1.0 and first.listened > 2.5
    rows.append(Row("drain: readiness turned 503 after", "", told, "below 1 s, and served on", good))
    once = paid[0] == paid[1] and not violations
    rows.append(Row("orders, paid in the end", "", f"{paid[0]}, {paid[1]}", "all, once each", once))
    lanes = [(name, _bands(seen)) for name, seen in found.items() if name != LONG]
    picture = strip(
        "Told to stop with a checkout of 3 s in flight", "seconds since the signal", lanes, _COLOURS
    )
    return Report(
        "drain",
        "a stop with a checkout in flight",
        tuple(rows),
        {"drain": picture},
        {
            name: {"exit": seen.exit, "listened": seen.listened, "ready_503": seen.ready_503}
            for name, seen in found.items()
        },
    )


def _bands(seen: _Stopped) -> list[tuple[float, float, str]]:
    """Draining while the door was open, finishing until the exit."""
    return [(0.0, seen.listened, "draining"), (seen.listened, seen.exit, "finishing")]
