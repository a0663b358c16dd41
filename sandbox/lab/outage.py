"""Ten minutes without a payment gateway, on a clock twenty times as fast: what was accepted, replayed and owed."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import requests

from sandbox.control import ControlError
from sandbox.lab.incident import Facts, draw, page
from sandbox.lab.report import Report, Row, Say
from sandbox.lab.shop import Shop
from sandbox.shopper import Answer, Shopper

FASTER = 20
"""Seconds of the story in one of ours. Every time the shop is set to is divided by it, but the answer's budget."""
MINUTES = 10.0
ORDERS_PER_SECOND = 10.0  # ours: one order here stands for twenty of the story
IMPATIENT = 5  # one form in so many is confirmed twice
BEFORE = 6.0
REPLAY_RATE = 10
_DRAIN_LONGEST = 60.0
_SKU = "ROPE-12"
_SETTINGS = {
    "PAYMENT_BREAKER_OPEN_SECONDS": "1.5",
    "DEGRADED_AFTER_OPEN_SECONDS": "3",
    "DEGRADED_MIN_SECONDS": "3",
    "RECOVER_AFTER_CLOSED_SECONDS": "0.75",
    "DEGRADED_RESERVE_SECONDS": "180",
    "RESERVE_SECONDS": "60",
    "DEGRADED_MAX_UNPAID_ORDERS": "1500",
    "DEGRADED_MAX_UNPAID_TOTAL": "100000000",
    "REPLAY_RATE": str(REPLAY_RATE),
    "REPLAY_RAMP_SECONDS": "2",
    "WORKER_BUDGET_MS": "1000",
    "INLINE_LEASE_SECONDS": "3",
    "OUTBOX_LEASE_SECONDS": "5",
    "OUTBOX_RETRY_MIN_SECONDS": "0.3",
    "OUTBOX_RETRY_MAX_SECONDS": "3",
    "TICK_SECONDS": "0.3",
    "WEB_WORKERS": "2",
}


@dataclass
class _Crowd:
    """Everybody who ordered, and what they got. Guarded by its lock."""

    began: float
    answers: list[tuple[float, Answer]] = field(default_factory=list)
    twice: int = 0
    two_orders: int = 0
    turned_away: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def order(self, url: str, number: int) -> None:
        """One person: fills a basket and confirms; one in five confirms again before the answer is there."""
        try:
            shopper = Shopper(url)
            form = shopper.fill_basket(_SKU)
            if "token" not in form:  # a busy shop has refused one of the pages on the way
                with self.lock:
                    self.turned_away += 1
                return
            self._confirm(shopper, form, impatient=number % IMPATIENT == 0)
        except requests.RequestException:
            with self.lock:
                self.answers.append((time.monotonic() - self.began, Answer(0, None, 30.0)))

    def _confirm(self, shopper: Shopper, form: dict[str, str], *, impatient: bool) -> None:
        at = time.monotonic() - self.began
        if not impatient:
            found = [shopper.submit(form)]
        else:
            with ThreadPoolExecutor(2) as hands:
                first = hands.submit(shopper.submit, form)
                second = hands.submit(shopper.twin().submit, form)
                found = [first.result(), second.result()]
        with self.lock:
            self.answers += [(at, answer) for answer in found]
            self.twice += impatient
            self.two_orders += len({answer.order for answer in found if answer.order}) > 1


class _Watch:
    """Looks at the shop's books twice a second, in a thread of its own."""

    def __init__(self, shop: Shop, began: float) -> None:
        self._shop, self._began = shop, began
        self.waiting: list[tuple[float, float]] = []
        self.paid: list[tuple[float, float]] = []
        self.modes: list[tuple[float, str]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.5):
            ((waiting, paid, mode),) = self._shop.sql(
                "SELECT (SELECT count(*) FROM orders_outboxmessage WHERE kind = 'charge' AND status = 'PENDING'),"
                " (SELECT count(*) FROM orders_order WHERE status = 'PAID'),"
                " (SELECT coalesce(max(automatic), 'NORMAL') FROM payments_modestate)"
            )
            at = time.monotonic() - self._began
            self.waiting.append((at, waiting))
            self.paid.append((at, paid))
            if not self.modes or self.modes[-1][1] != mode:
                self.modes.append((at, mode))

    def until_nothing_waits(self, seconds: float) -> float | None:
        """Seconds since the beginning, None if something waits after all."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.waiting and self.waiting[-1][1] == 0:
                return self.waiting[-1][0]
            time.sleep(0.1)
        return None

    def stop(self) -> None:
        self._over.set()
        self._thread.join(10)


def run(say: Say) -> Report:
    """About two minutes: before, outage, replay, audit."""
    with Shop(_SETTINGS, ("web", "worker", "money-worker", "beat")) as shop:
        shop.sql("UPDATE orders_stockitem SET on_hand = 100000")
        _warm_up(shop)
        crowd = _Crowd(time.monotonic())
        watch = _Watch(shop, crowd.began)
        outage = MINUTES * 60 / FASTER
        say(
            f"{BEFORE:.0f} s of shopping, then the gateway hangs for {outage:.0f} s: ten minutes of the story"
        )
        told = [(BEFORE, "the payment gateway hangs")]
        events = threading.Thread(target=_fate, args=(shop, crowd.began, BEFORE, outage, told, say))
        events.start()
        _shopping(shop.demo.url, crowd, BEFORE + outage)
        events.join()
        healed = told[-1][0]
        drained = watch.until_nothing_waits(_DRAIN_LONGEST)
        say(f"{len(crowd.answers)} answers; nothing waits any more after {(drained or 0) - healed:.0f} s")
        time.sleep(1.5)  # the mode follows
        watch.stop()
        facts = _facts(shop, crowd, watch, told, (BEFORE, healed, drained))
    return _report(facts)


def _warm_up(shop: Shop) -> None:
    """The first orders of a process load code and open connections."""
    for _ in range(8):
        shopper = Shopper(shop.demo.url)
        shopper.submit(shopper.fill_basket(_SKU))


def _shopping(url: str, crowd: _Crowd, seconds: float) -> None:
    with ThreadPoolExecutor(24) as people:
        for number in range(int(seconds * ORDERS_PER_SECOND)):
            time.sleep(max(0.0, crowd.began + number / ORDERS_PER_SECOND - time.monotonic()))
            people.submit(crowd.order, url, number)


def _fate(
    shop: Shop, began: float, at: float, outage: float, told: list[tuple[float, str]], say: Say
) -> None:
    """What happens to the shop, by the clock."""

    def wait(moment: float) -> float:
        time.sleep(max(0.0, began + moment - time.monotonic()))
        return time.monotonic() - began

    told[0] = (wait(at), told[0][1])
    shop.gateway.break_with({"hang": True})
    moment = wait(at + outage / 2)
    if pid := shop.demo.pids().get("money-worker"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    told.append((moment, "the worker that replays payments is killed (kill -9)"))
    say("half way: the worker that replays payments is killed")
    moment = wait(at + outage)
    with contextlib.suppress(ControlError):
        shop.gateway.heal()
    told.append((moment, "the payment gateway is back"))


_CHANGES = """
SELECT extract(epoch FROM clock_timestamp() - at)::float, new_effective, reason FROM payments_modechange ORDER BY id
"""
_DEFERRED = """
SELECT coalesce(sum(o.base_total_minor), 0) FROM orders_order o
JOIN orders_orderevent e ON e.order_id = o.id AND e.from_status = 'PLACED' AND e.to_status = 'AWAITING_PAYMENT'
"""
_PAID_AFTER = """
SELECT extract(epoch FROM clock_timestamp() - at)::float FROM orders_orderevent
WHERE from_status = %s AND to_status = 'PAID' ORDER BY at
"""


def _facts(
    shop: Shop,
    crowd: _Crowd,
    watch: _Watch,
    told: Sequence[tuple[float, str]],
    moments: tuple[float, float, float | None],
) -> Facts:
    """Everything the table and the page tell, in our seconds."""
    now = time.monotonic() - crowd.began
    changes = shop.sql(_CHANGES)
    ((value,),) = shop.sql(_DEFERRED)
    statuses = dict(shop.sql("SELECT status, count(*) FROM orders_order GROUP BY status"))
    references = Counter(charge["reference"] for charge in shop.gateway.ledger()["charges"])
    return Facts(
        faster=FASTER,
        began=moments[0],
        healed=moments[1],
        drained=moments[2],
        told=[*told, *((now - ago, f"mode {mode}: {reason}") for ago, mode, reason in changes)],
        modes=watch.modes,
        waiting=watch.waiting,
        paid=watch.paid,
        orders=sum(statuses.values()),
        statuses=statuses,
        at_once=len(shop.sql(_PAID_AFTER, "PLACED")),
        replayed=[now - ago for (ago,) in shop.sql(_PAID_AFTER, "AWAITING_PAYMENT")],
        deferred_minor=int(value),
        answers=[(at, answer.status, answer.seconds) for at, answer in crowd.answers],
        twice=crowd.twice,
        two_orders=crowd.two_orders,
        turned_away=crowd.turned_away,
        charges=references.total(),
        charged_twice=sum(count > 1 for count in references.values()),
        violations=shop.violations(),
    )


def _during(facts: Facts) -> Iterator[Row]:
    """What shoppers met while the gateway was down."""
    during = facts.during()
    accepted = sum(status == 302 for status in during)
    yield Row(
        "answers to confirmed forms during the outage, by status",
        "",
        ", ".join(f"{count} × {status}" for status, count in sorted(Counter(during).items())),
        "80 % an order, the others an honest 503",
        accepted >= 0.8 * len(during) and set(during) <= {302, 503},
    )
    yield Row(
        "shoppers turned away by an earlier page, of all", "", f"{facts.turned_away}, {facts.shoppers()}"
    )
    double = "forms confirmed twice at once, of these that made two orders"
    yield Row(double, "", f"{facts.twice}, {facts.two_orders}", "0 two orders", not facts.two_orders)
    yield Row("slowest answer of a hundred while the gateway hung (p99), ms", "", f"{facts.p99_ms():.0f}")
    knew = facts.degraded_after()
    told = "never" if knew is None else f"{knew:.0f}"
    mode = "shop in degraded mode after, story's seconds"
    yield Row(mode, "60 and the window", told, "below 360", knew is not None and knew < 360)


def _afterwards(facts: Facts) -> Iterator[Row]:
    """What became of the orders."""
    paid, most, expired = (
        facts.statuses.get("PAID", 0),
        facts.busiest_second(),
        facts.statuses.get("CANCELLED", 0),
    )
    yield Row("orders paid at once, deferred and paid later", "", f"{facts.at_once}, {len(facts.replayed)}")
    pace = REPLAY_RATE + 3
    yield Row("replayed in the busiest second", "", str(most), f"at most {pace}", most <= pace)
    took = facts.drained and facts.story(facts.drained - facts.healed) / 60
    drain = "time to drain, story's minutes"
    yield Row(
        drain, "", f"{took:.1f}" if took else "never", "within an hour", bool(took) and (took or 0) < 60
    )
    yield Row("reserves expired", "", str(expired), "0", not expired)
    yield Row("orders paid in the end", "", f"{paid} of {facts.orders}", "all", paid == facts.orders)
    yield Row(
        "charges at the gateway, of these twice for one order",
        "",
        f"{facts.charges}, {facts.charged_twice}",
        "one for each paid order",
        facts.charges == paid and not facts.charged_twice,
    )
    yield Row("violations found by the audit", "", str(len(facts.violations)), "0", not facts.violations)


def _report(facts: Facts) -> Report:
    rows = (Row("orders placed in all", "", str(facts.orders)), *_during(facts), *_afterwards(facts))
    plots = draw(facts)
    return Report(
        "outage",
        "ten minutes without a payment gateway",
        rows,
        plots,
        {
            "waiting": facts.waiting,
            "paid": facts.paid,
            "told": list(facts.told),
            "violations": facts.violations,
        },
        {"incident-report.html": page(facts, plots)},
    )
