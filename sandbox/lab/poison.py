"""A message that can never be delivered, at the head of the queue: how long everybody behind it waits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from resilience.testing import ManualClock
from sandbox.lab.plot import lines
from sandbox.lab.report import Report, Row, Say
from sandbox.lab.shop import Shop, wait_until
from sandbox.shopper import Shopper

GOOD, BATCH, MANY = 100, 100, 150
REPEATS, PAUSE = 3, 1.0
_SETTINGS = {
    "TICK_SECONDS": "0.5",
    "OUTBOX_MAX_ATTEMPTS": str(REPEATS + 1),
    "OUTBOX_RETRY_MIN_SECONDS": str(0.75 * PAUSE),  # with jitter, on the average the source's pause
    "OUTBOX_RETRY_MAX_SECONDS": str(1.25 * PAUSE),
}
_BEGINS_AFTER = 1.0  # seconds until the messages may be taken: all of them, and the clock, begin at once
_GOOD = {"notice": "paid"}
_FAILS = {"notice": ["paid"]}  # trips up whoever reads it: to the outbox, an error like any other
_POISON = {"notice": "no such notice"}  # recognised: no repeat could help
_INSERT = """
INSERT INTO orders_outboxmessage (kind, destination, order_id, payload, dedup, status, due_at, available_at, attempts,
    setbacks, last_error, created_at)
SELECT 'notify', 'mail', %s, %s, %s || g, 'PENDING', now() - %s * interval '1 s', now() + %s * interval '1 s', 0, 0, '',
    now()
FROM generate_series(1, %s) g
"""
_ENDED = """
SELECT status, attempts, extract(epoch FROM finished_at - created_at)::float - %s FROM orders_outboxmessage
WHERE dedup LIKE %s || '%%' ORDER BY finished_at
"""


@dataclass(frozen=True)
class _Run:
    """Seconds since the messages could be taken: when each good one was delivered, each bad one given up."""

    delivered: list[float]
    given_up: list[float]
    attempts: list[int]

    @property
    def first(self) -> float:
        return self.delivered[0] if self.delivered else float("inf")

    @property
    def last(self) -> float:
        return self.delivered[-1] if self.delivered else float("inf")


def run(say: Say) -> Report:
    """A hundred good messages, each time behind other bad ones."""
    with Shop(_SETTINGS, ("web", "worker", "money-worker", "beat")) as shop:
        order = _paid_order(shop)
        none = _play(shop, order, "none", 0, _FAILS)
        one = _play(shop, order, "one", 1, _FAILS)
        known = _play(shop, order, "known", 1, _POISON)
        many = _play(shop, order, "many", MANY, _FAILS)
    runs = {"none": none, "one bad": one, "one poison": known, f"{MANY} bad": many}
    for name, done in runs.items():
        say(f"{name}: the last of {GOOD} delivered after {done.last:.1f} s")
    return _report(runs)


def _paid_order(shop: Shop) -> int:
    shopper = Shopper(shop.demo.url)
    answer = shopper.submit(shopper.fill_basket("ROPE-12"))
    assert answer.order is not None
    wait_until(lambda: shopper.state(answer.order or "") == "paid", 20)
    wait_until(lambda: not shop.sql("SELECT 1 FROM orders_outboxmessage WHERE status = 'PENDING'"), 20)
    ((order,),) = shop.sql("SELECT id FROM orders_order")
    return int(order)


def _play(shop: Shop, order: int, name: str, bad: int, payload: Mapping[str, object]) -> _Run:
    begins = _BEGINS_AFTER
    shop.sql(_INSERT, order, json.dumps(payload), f"lab:{name}:bad:", 60, begins, bad)
    shop.sql(_INSERT, order, json.dumps(_GOOD), f"lab:{name}:good:", 0, begins, GOOD)
    like = f"lab:{name}:"
    wait_until(
        lambda: (
            not shop.sql(
                "SELECT 1 FROM orders_outboxmessage WHERE dedup LIKE %s || '%%' AND status = 'PENDING' LIMIT 1",
                like,
            )
        ),
        60,
    )
    good = shop.sql(_ENDED, begins, f"{like}good:")
    dead = shop.sql(_ENDED, begins, f"{like}bad:")
    return _Run(
        [at for status, _, at in good if status == "DONE"],
        [at for status, _, at in dead if status == "DEAD"],
        [attempts for _, attempts, _ in dead],
    )


def _ordered(repeats: int, pause: float) -> float:
    """A queue that keeps its order: the seconds everybody waits behind one bad message."""
    clock = ManualClock(0.0)
    for _ in range(repeats):
        clock.sleep(pause)
    return clock.monotonic()


def _batches(bad: int, good: int, rounds: int = 100) -> int:
    """A consumer that takes the oldest so many each time and puts back what failed: the good ones it delivers."""
    waiting = [False] * bad + [True] * good
    delivered = 0
    for _ in range(rounds):
        batch, waiting = waiting[:BATCH], waiting[BATCH:]
        delivered += sum(batch)
        waiting = [message for message in batch if not message] + waiting
    return delivered


def _reckoned() -> tuple[Row, ...]:
    """What other queues do with the same messages, by arithmetic."""
    ordered, minutes = _ordered(REPEATS, PAUSE), _ordered(10, 60.0) / 60
    put_back = (
        f"{MANY} bad messages, the oldest {BATCH} first, put back: good ones delivered in {BATCH} rounds"
    )
    return (
        Row("an ordered queue, 3 repeats after 1 s: standstill, s", "3", f"{ordered:g}", "3", ordered == 3),
        Row("the same, 10 repeats after 60 s: standstill, min", "10", f"{minutes:g}", "10", minutes == 10),
        Row(put_back, "", str(_batches(MANY, GOOD))),
    )


def _given_up(what: str, theirs: str, done: _Run, tries: int) -> Row:
    """One bad message, in how many tries."""
    told = f"{done.attempts[0]}, {done.given_up[0]:.1f}" if done.given_up else "kept"
    expected = f"{tries} {'tries' if tries > 1 else 'try'}, then a dead letter"
    good = done.attempts == [tries] and len(done.given_up) == 1
    return Row(f"{what}: tries, given up after, s", theirs, told, expected, good)


def _rows(none: _Run, one: _Run, known: _Run, many: _Run) -> tuple[Row, ...]:
    return (
        *_reckoned(),
        Row(
            f"ours, no bad message: first and last of {GOOD} delivered after, s",
            "",
            f"{none.first:.2f}, {none.last:.2f}",
            "all",
            len(none.delivered) == GOOD,
        ),
        Row(
            "ours, one bad message at the head: the first good one behind it after, s",
            "3",
            f"{one.first:.2f}",
            "below 1.5, of it up to 0.5 until somebody looks",
            one.first < 1.5 and len(one.delivered) == GOOD,
        ),
        _given_up("the bad one", "4, 3", one, REPEATS + 1),
        _given_up("one that is recognised as poison", "1", known, 1),
        Row(
            f"ours, {MANY} bad messages at the head: the first good one after, s",
            "",
            f"{many.first:.2f}",
            f"all {GOOD} delivered, {MANY} dead letters",
            len(many.delivered) == GOOD and len(many.given_up) == MANY,
        ),
    )


def _report(runs: dict[str, _Run]) -> Report:
    none, one, known, many = runs.values()
    ordered = _ordered(REPEATS, PAUSE)
    curves = {
        "in order, one bad": [
            (0.0, 0.0),
            (ordered, 0.0),
            *((ordered + at, n) for n, at in enumerate(none.delivered, 1)),
        ],
        **{
            f"ours, {name}": [(0.0, 0.0), *((at, n) for n, at in enumerate(done.delivered, 1))]
            for name, done in runs.items()
            if name != "one poison"
        },
    }
    picture = lines("Good messages delivered behind bad ones", "seconds", "messages", curves, steps=True)
    return Report(
        "poison",
        "a message that can never be delivered, at the head",
        _rows(none, one, known, many),
        {"poison": picture},
        {name: {"delivered": done.delivered, "given_up": done.given_up} for name, done in runs.items()},
    )
