"""One incident from order to audit in under a minute: `python -m sandbox.smoke`. Exit 0 if all is well.

Starts the whole demo on free ports with shortened settings, lets people order, hangs the payment gateway
while they go on ordering (some submit twice), heals it, waits until everything is paid, and audits.
"""

import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.control import ROOT, Control
from sandbox.demo import Demo, DemoError
from sandbox.shopper import Shopper

HEALTHY_ORDERS = 8
OUTAGE_SECONDS = 12.0
SHOPPERS = 4
PAUSE_SECONDS = 0.5
RECOVERY_SECONDS = 25.0
_SHORTENED = {
    "INLINE_LEASE_SECONDS": "3",
    "OUTBOX_RETRY_MAX_SECONDS": "3",
    "PAYMENT_BREAKER_OPEN_SECONDS": "2",
    "REPLAY_RATE": "20",
    "REPLAY_RAMP_SECONDS": "2",
    "TICK_SECONDS": "0.5",
}


@dataclass
class Tally:
    """What the shoppers saw. Guarded by its lock."""

    orders: dict[str, str] = field(default_factory=dict)  # page → what it said at once
    slowest: float = 0.0
    refused: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def one_order(self, base: str, sku: str, *, twice: bool = False) -> float:
        """Somebody orders; the impatient confirm the same form twice. Returns the longest wait."""
        shopper = Shopper(base)
        form = shopper.fill_basket(sku)
        answers = [shopper.submit(form) for _ in range(2 if twice else 1)]
        slowest = max(answer.seconds for answer in answers)
        with self.lock:
            for answer in answers:
                if answer.order is None:
                    self.refused += 1
                else:
                    self.orders.setdefault(answer.order, shopper.state(answer.order))
        return slowest

    def count(self, *states: str) -> int:
        return sum(state in states for state in self.orders.values())


def _crowd(tally: Tally, base: str, seconds: float) -> None:
    """Several people order again and again while the gateway hangs."""
    end = time.monotonic() + seconds

    def keep_ordering(number: int) -> None:
        for turn in itertools.count(number):
            if time.monotonic() > end:
                return
            wait = tally.one_order(base, "ROPE-12", twice=turn % 5 == 0)
            with tally.lock:
                tally.slowest = max(tally.slowest, wait)
            time.sleep(PAUSE_SECONDS)

    with ThreadPoolExecutor(SHOPPERS) as pool:
        list(pool.map(keep_ordering, range(SHOPPERS)))


def _paid_in_the_end(tally: Tally, base: str) -> int:
    """Waits until every order's page says paid; returns how many do."""
    reader, end = Shopper(base), time.monotonic() + RECOVERY_SECONDS
    waiting = set(tally.orders)
    while waiting and time.monotonic() < end:
        waiting -= {order for order in waiting if reader.state(order) == "paid"}
        time.sleep(0.5)
    return len(tally.orders) - len(waiting)


def _audit(demo: Demo) -> list[str]:
    command = [sys.executable, "manage.py", "audit", "--json"]
    done = subprocess.run(
        command, cwd=ROOT, env=demo.env, capture_output=True, text=True, timeout=30, check=False
    )
    try:
        violations = json.loads(done.stdout)["violations"]
    except (ValueError, KeyError, TypeError):
        return [f"the audit did not run: {done.stderr.strip()[-300:]}"]
    return [f"{violation['invariant']} {violation['text']}" for violation in violations]


def play(demo: Demo) -> bool:
    """The incident. Prints the table; True if nothing was lost, doubled or oversold."""
    tally, gateway = Tally(), Control(demo.env["PAYMENT_CONTROL_URL"])
    for _ in range(HEALTHY_ORDERS):
        tally.one_order(demo.url, "ROPE-12")
    inline = tally.count("paid")
    gateway.break_with({"hang": True})
    _crowd(tally, demo.url, OUTAGE_SECONDS)
    deferred = tally.count("awaiting", "confirming")
    gateway.heal()
    paid = _paid_in_the_end(tally, demo.url)
    charges = Counter(charge["reference"] for charge in gateway.ledger()["charges"])
    violations = _audit(demo)
    twice = sum(count > 1 for count in charges.values())
    lost = len(tally.orders) - paid
    oversold = sum(violation.startswith("I3") for violation in violations)
    for name, value in (
        ("orders placed", len(tally.orders)),
        ("paid inline", inline),
        ("deferred", deferred),
        ("replayed", paid - inline),
        ("charged twice", twice),
        ("lost", lost),
        ("oversold", oversold),
        ("turned away", tally.refused),
        ("slowest checkout while the gateway hung, ms", round(tally.slowest * 1000)),
    ):
        print(f"{name:<45}{value:>6}")
    complaints = [
        *violations,
        *(["nothing was paid at once while the gateway was healthy"] if not inline else []),
        *(["nothing was accepted while the gateway hung"] if not deferred else []),
        *([f"{twice} orders were charged twice"] if twice else []),
        *([f"{lost} orders were never paid"] if lost else []),
    ]
    for complaint in complaints:
        print(complaint)
    return not complaints


def main() -> None:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-smoke-") as home:
        Path(home).chmod(0o711)  # run by root, PostgreSQL is another user's, who has to pass through
        demo = Demo(Path(home), env=_SHORTENED)
        try:
            demo.start()
            good = play(demo)
        except DemoError as error:
            sys.exit(str(error))
        finally:
            demo.stop()
    print(f"{'all is well' if good else 'NOT as it should be'}, {time.monotonic() - begun:.0f} s")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
