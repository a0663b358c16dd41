"""Real processes under random faults: kill -9, lost sessions, a broker that comes and goes, a gateway gone mad."""

from __future__ import annotations

import contextlib
import io
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import requests

from sandbox.processes import descendants
from sandbox.webhooks import Webhooks
from tests.neighbours import DOWN, HANG, HANG_AFTER, REFUSE, Neighbourhood
from tests.processes.harness import Browser, Stack
from tests.world import DECLINED, NEEDS_ACTION, VISA

GATEWAY_FAULTS = {
    "hang": HANG,
    "hang after booking": HANG_AFTER,
    "503": DOWN,
    "refuse": REFUSE,
    "500 after booking": {"effect": {"status": 500, "after": True}},
    "reset after booking": {"effect": {"reset": "after"}},
    "cut answers": {"effect": {"truncate_bytes": 40}},
    "slow": {"effect": {"latency_ms": 300, "jitter_ms": 290}},
    "garbage": {"match": {"method": "POST"}, "effect": {"replace_body": "<html>maintenance</html>"}},
    "half of all lost": {"match": {"share": 0.5}, "effect": {"close": "after"}},
}
KEPT = ("web-1", "web-2", "worker", "money-worker", "beat")
SETTLE_SECONDS = 240.0
SECRET = "whsec_storm"


@dataclass
class Report:
    """What was done and what came of it."""

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    orders: Counter[str] = field(default_factory=Counter)
    charges: int = 0
    refunds: int = 0
    violations: list[str] = field(default_factory=list)
    settled_after: float = 0.0

    def __str__(self) -> str:
        lines = [f"seed {self.seed}", f"faults injected: {sum(self.faults.values())}"]
        lines += [f"  {count:4d}  {name}" for name, count in sorted(self.faults.items())]
        lines.append(f"orders: {sum(self.orders.values())}")
        lines += [f"  {count:4d}  {name}" for name, count in sorted(self.orders.items())]
        lines.append(f"charges {self.charges}, of these given back {self.refunds}")
        lines.append(f"all settled {self.settled_after:.0f} s after the last fault")
        lines.append(f"violations: {len(self.violations)}")
        return "\n".join([*lines, *(f"  {text}" for text in self.violations)])


class Storm:
    """One run: `seconds` of faults, then healing, waiting and auditing."""

    def __init__(self, seed: int, seconds: float, shoppers: int) -> None:
        self.dice = random.Random(seed)
        self.seconds, self.shoppers = seconds, shoppers
        self.report = Report(seed)
        self.over = threading.Event()
        self.bases: list[str] = []

    def blow(self) -> Report:
        self.neighbours = Neighbourhood()
        self.stack = Stack(
            RESERVE_SECONDS="30",
            DEGRADED_RESERVE_SECONDS="60",
            DEGRADED_MAX_UNPAID_ORDERS="1000",
            ACTION_REQUIRED_SECONDS="20",
            ACTION_POLL_SECONDS="2",
            VOID_LOOK_SECONDS="2",
            OUTBOX_MAX_ATTEMPTS="30",
            DEGRADED_AFTER_OPEN_SECONDS="6",
            DEGRADED_MIN_SECONDS="5",
            RECOVER_AFTER_CLOSED_SECONDS="3",
            CHECKOUT_BUDGET_MS="1500",
            INLINE_LEASE_SECONDS="4",
            PAYMENT_WEBHOOK_SECRET=SECRET,
        )
        with contextlib.ExitStack() as last:
            self.stack.__enter__()
            last.push(self._end)
            self.stack.sql("UPDATE orders_stockitem SET on_hand = 100000")
            self._start()
            crowd = [
                threading.Thread(target=self._shop, args=(random.Random(self.dice.random()),), daemon=True)
                for _ in range(self.shoppers)
            ]
            for shopper in crowd:
                shopper.start()
            self._rage()
            self.over.set()
            for shopper in crowd:
                shopper.join(40)
            self._heal()
            self._settle()
            self._judge()
            self.neighbours.gateway.webhooks.stop()
            self.neighbours.gateway.webhooks = self.silent
        return self.report

    def _end(self, *error: object) -> None:
        """Every process ends; its log is of interest only if something went wrong."""
        fine = error[0] is None and not self.report.violations
        with contextlib.redirect_stdout(io.StringIO()) if fine else contextlib.nullcontext():
            self.stack.__exit__(None, None, None)

    # --- the crowd ------------------------------------------------------------------------------------

    def _shop(self, dice: random.Random) -> None:
        while not self.over.is_set():
            with contextlib.suppress(requests.RequestException, AssertionError, KeyError):
                self._one_visit(dice)
            self.over.wait(dice.uniform(0.05, 0.4))

    def _one_visit(self, dice: random.Random) -> None:
        browser = Browser(dice.choice(self.bases))
        browser.put_in_basket(quantity=dice.randint(1, 3))
        form = browser.checkout_form()
        form["method"] = dice.choices([VISA, DECLINED, NEEDS_ACTION], [8, 1, 1])[0]
        page = browser.submit(form)
        if dice.random() < 0.1:
            page = browser.submit(form)  # impatient
        if page.status != 302:
            return
        if form["method"] == NEEDS_ACTION and dice.random() < 0.7:
            self._answer_the_bank(dice.choice(["pass", "pass", "fail"]))
            browser.get(f"{page.path}back/")
        wish = dice.random()
        if wish < 0.1:
            browser.post(f"{page.path}cancel/", {})
        elif wish < 0.25:
            browser.post(f"{page.path}pay/", {"method": VISA})

    def _answer_the_bank(self, answer: str) -> None:
        waiting = [
            i["id"] for i in self.neighbours.gateway.report(0)["intents"] if i["status"] == "requires_action"
        ]
        if waiting:
            url = f"{self.neighbours.gateway.control_url}/_sandbox/authenticate/{waiting[-1]}"
            requests.post(url, data={"result": answer}, allow_redirects=False, timeout=5)

    # --- the faults -----------------------------------------------------------------------------------

    def _rage(self) -> None:
        end = time.monotonic() + self.seconds
        blows: dict[str, tuple[int, Callable[[], None]]] = {
            "kill -9 of a web server": (2, lambda: self._restart(self.dice.choice(["web-1", "web-2"]))),
            "kill -9 of a web worker": (2, lambda: self._kill_child(self.dice.choice(["web-1", "web-2"]))),
            "kill -9 of a worker": (2, lambda: self._restart(self.dice.choice(["worker", "money-worker"]))),
            "kill -9 of a worker's child": (4, lambda: self._kill_child("money-worker")),
            "kill -9 of beat": (1, lambda: self._restart("beat")),
            "kill -9 of Valkey": (1, self._valkey_dies),
            "database sessions ended": (3, self._end_sessions),
            "gateway": (8, self._gateway_fault),
        }
        names = list(blows)
        weights = [blows[name][0] for name in names]
        while time.monotonic() < end:
            self.over.wait(self.dice.uniform(0.5, 2.0))
            name = self.dice.choices(names, weights)[0]
            if name != "gateway":
                self.report.faults[name] += 1
            blows[name][1]()

    def _gateway_fault(self) -> None:
        name = self.dice.choice(sorted(GATEWAY_FAULTS))
        self.report.faults[f"gateway: {name}"] += 1
        self.neighbours.fault(self.neighbours.gateway, GATEWAY_FAULTS[name])
        self.over.wait(self.dice.uniform(0.5, 4.0))
        self.neighbours.heal()

    def _restart(self, name: str) -> None:
        self.stack.kill(name)
        self.over.wait(self.dice.uniform(0, 1.0))
        self._run(name)

    def _run(self, name: str) -> None:
        if name.startswith("web"):
            self.stack.web(name)
        else:
            self.stack.start(name, self.stack.command(name))

    def _kill_child(self, name: str) -> None:
        children = descendants(self.stack.processes[name].pid)
        if children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.dice.choice(children), signal.SIGKILL)

    def _valkey_dies(self) -> None:
        self.stack.valkey.kill()
        self.over.wait(self.dice.uniform(0.2, 2.0))
        self.stack.valkey.start()

    def _end_sessions(self) -> None:
        self.stack.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND random() < 0.5"
        )

    # --- afterwards -----------------------------------------------------------------------------------

    def _start(self) -> None:
        self.bases = [self.stack.web("web-1"), self.stack.web("web-2")]
        self.stack.workers()
        gateway = self.neighbours.gateway
        self.silent, gateway.webhooks = (
            gateway.webhooks,
            Webhooks(f"{self.bases[0]}/payments/webhook/", SECRET),
        )
        gateway.webhooks.configure({"mode": "twice"})

    def _heal(self) -> None:
        self.neighbours.heal()
        for name in KEPT:
            if self.stack.processes[name].poll() is not None:
                self._run(name)

    def _settle(self) -> None:
        began = time.monotonic()
        while time.monotonic() - began < SETTLE_SECONDS:
            if not self._unsettled():
                break
            time.sleep(1)
        self.report.settled_after = time.monotonic() - began

    def _unsettled(self) -> int:
        orders = self.stack.sql(
            "SELECT count(*) FROM orders_order WHERE status IN ('PLACED', 'AWAITING_PAYMENT', 'ACTION_REQUIRED')"
        )[0][0]
        messages = self.stack.sql("SELECT count(*) FROM orders_outboxmessage WHERE status = 'PENDING'")[0][0]
        return int(orders + messages)

    def _judge(self) -> None:
        report = self.report
        report.orders.update(self.stack.orders())
        charges = self.neighbours.charges
        report.charges = len(charges)
        report.refunds = sum(1 for charge in charges if charge["refunded"])
        output = self.stack.manage("audit", check=False)
        if "all invariants hold" not in output:
            report.violations += output.splitlines()
        if left := self._unsettled():
            report.violations.append(f"stuck: {left} orders or messages after {SETTLE_SECONDS:.0f} s")
        kept = sum(1 for charge in charges if not charge["refunded"])
        if kept != report.orders["PAID"]:
            report.violations.append(f"{kept} charges kept for {report.orders['PAID']} paid orders")
        dead = self.stack.sql(
            "SELECT kind, last_error FROM orders_outboxmessage WHERE status = 'DEAD' AND kind <> 'notify'"
        )
        report.violations += [f"dead letter: {kind}: {reason}" for kind, reason in dead]
