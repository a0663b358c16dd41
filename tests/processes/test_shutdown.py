"""A deploy costs no request: readiness goes first, then the listeners, then what was begun is finished (OP-32).

Every process is started by its line of the Procfile.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from sandbox.lab.shutdown import ask_anew, keep_asking
from sandbox.processes import descendants
from tests.neighbours import HANG, Neighbourhood
from tests.processes.harness import Browser, Stack, eventually

pytestmark = pytest.mark.process
# A checkout may take as long as the gateway does here: time is not the subject, its end is.
PATIENT = {"CHECKOUT_BUDGET_MS": "20000", "INLINE_LEASE_SECONDS": "30", "WEB_WORKERS": "3"}
REMOVED_AFTER = 2.0  # seconds until the simulated load balancer stops sending


def takes(seconds: float) -> dict[str, object]:
    """A rule for the gateway."""
    return {"match": {"method": "POST"}, "effect": {"latency_ms": int(seconds * 1000)}}


class Stop:
    """One signal to end and what came of it."""

    def __init__(
        self,
        stack: Stack,
        name: str = "web",
        send: Callable[[int, int], None] = os.kill,
        number: signal.Signals = signal.SIGTERM,
    ) -> None:
        self._process: subprocess.Popen[bytes] = stack.processes[name]
        self._family = descendants(self._process.pid)
        self._number = number
        self.at = time.monotonic()
        send(self._process.pid, number)

    def again(self) -> None:
        os.kill(self._process.pid, self._number)

    def wait(self, seconds: float = 30.0) -> tuple[int, float]:
        """Exit code and seconds since the signal. No child is left."""
        code = self._process.wait(seconds)
        took = time.monotonic() - self.at
        eventually(lambda: not any(_runs(pid) for pid in self._family), 5)
        return code, took


def _runs(pid: int) -> bool:
    """Dead is dead, even while whoever inherited the process has not yet asked for its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def checkout_in_flight(base: str, neighbours: Neighbourhood) -> Future[int]:
    """A checkout that is at the gateway now; its status when it ends, or 0 when it was cut off."""
    browser = Browser(base)
    browser.put_in_basket()
    form = browser.checkout_form()
    before = len(neighbours.money_calls)
    pool = ThreadPoolExecutor(1)

    def submit() -> int:
        try:
            return browser.submit(form).status
        except OSError:
            return 0

    future = pool.submit(submit)
    pool.shutdown(wait=False)
    eventually(lambda: len(neighbours.money_calls) > before, 10)
    return future


def begins(stack: Stack, **environment: str) -> str:
    stack.environment.update(PATIENT)
    return stack.web(**environment)


@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["to the top process", "to the whole group"])
def test_a_stop_fails_no_request_while_the_load_balancer_still_sends(
    stack: Stack, neighbours: Neighbourhood, send: Callable[[int, int], None]
) -> None:
    """Seed 004's table: 149 to 162 of as many failed without a pause, 0 with one."""
    base = begins(stack, DRAIN_SECONDS="3")
    neighbours.fault(neighbours.gateway, takes(3.5))
    slow = checkout_in_flight(base, neighbours)
    stop = Stop(stack, send=send)
    assert eventually(lambda: ask_anew(base, "/health/ready/") == "503", 1)
    told = time.monotonic() - stop.at
    seen = keep_asking(base, REMOVED_AFTER - told, clients=20)
    assert set(seen) == {"200"}, seen
    assert slow.result(20) == 302
    code, took = stop.wait()
    assert code == 0
    assert 3.0 <= took < 12, took
    print(
        f"ready 503 after {told:.2f} s; {seen.total()} requests, {seen['200']} answered; exit after {took:.1f} s"
    )
    assert stack.orders() == {"PAID": 1}
    stack.audit()


def test_without_a_drain_the_same_requests_fail(stack: Stack, neighbours: Neighbourhood) -> None:
    """What the drain is for; a request in flight is finished even so."""
    base = begins(stack, DRAIN_SECONDS="0")
    neighbours.fault(neighbours.gateway, takes(3))
    slow = checkout_in_flight(base, neighbours)
    stop = Stop(stack)
    seen = keep_asking(base, REMOVED_AFTER)
    failed = seen.total() - seen["200"]
    assert failed > 0.9 * seen.total(), seen
    assert slow.result(20) == 302
    code, took = stop.wait()
    assert code == 0
    assert took < 6, took
    print(f"{failed} of {seen.total()} failed: {dict(seen)}; exit after {took:.1f} s")


def test_a_grace_shorter_than_the_request_cuts_it_and_the_order_is_still_paid_once(
    stack: Stack, neighbours: Neighbourhood
) -> None:
    stack.workers()
    base = begins(stack, DRAIN_SECONDS="1", GRACE_SECONDS="1", INLINE_LEASE_SECONDS="21")
    neighbours.fault(neighbours.gateway, takes(8))
    slow = checkout_in_flight(base, neighbours)
    code, took = Stop(stack).wait()
    assert slow.result(20) == 0
    assert code == 0
    assert 1.9 <= took < 4.5, took
    assert stack.orders() == {"AWAITING_PAYMENT": 1} or stack.orders() == {"PLACED": 1}
    neighbours.heal()
    stack.sql("UPDATE orders_outboxmessage SET available_at = now() WHERE kind = 'charge'")
    eventually(lambda: stack.orders() == {"PAID": 1}, 20)
    assert len(neighbours.charges) == 1
    stack.audit()


@pytest.mark.parametrize("when", ["draining", "finishing"])
def test_a_second_signal_ends_it_now(stack: Stack, neighbours: Neighbourhood, when: str) -> None:
    base = begins(stack, DRAIN_SECONDS="0.5" if when == "finishing" else "5")
    neighbours.fault(neighbours.gateway, HANG)
    slow = checkout_in_flight(base, neighbours)
    stop = Stop(stack)
    if when == "draining":
        eventually(lambda: ask_anew(base, "/health/ready/") == "503", 1)
        time.sleep(0.2)
    else:
        eventually(lambda: ask_anew(base) == "ConnectionRefusedError", 5)
    again = time.monotonic()
    stop.again()
    code, _ = stop.wait()
    assert time.monotonic() - again < 1.5
    assert code == 0
    assert slow.result(5) == 0


def test_a_signal_told_twice_in_one_breath_is_one(stack: Stack) -> None:
    """As timeout(1) does, which signals its child and then the group."""
    base = stack.web(DRAIN_SECONDS="1", WEB_WORKERS="2")
    stop = Stop(stack)
    stop.again()
    seen = keep_asking(base, 0.5)
    assert set(seen) == {"200"}, seen
    assert stop.wait()[1] >= 1.0


def test_a_signal_during_the_start_is_obeyed(stack: Stack) -> None:
    """Before the workers are loaded, and at some later moments."""
    for delay in (0.05, 0.8):
        stack.start("early", stack.command("web"), PORT="0", DRAIN_SECONDS="0.2", WEB_WORKERS="2")
        time.sleep(delay)
        code, took = Stop(stack, "early").wait()
        assert code in (0, -signal.SIGTERM), code
        assert took < 6, took


def test_a_worker_that_dies_while_draining_is_replaced_and_stays_not_ready(stack: Stack) -> None:
    base = stack.web(DRAIN_SECONDS="4", WEB_WORKERS="1")
    (child,) = descendants(stack.processes["web"].pid)
    stop = Stop(stack)
    eventually(lambda: ask_anew(base, "/health/ready/") == "503", 1)
    os.kill(child, signal.SIGKILL)
    eventually(lambda: ask_anew(base) == "200", 3.5)
    assert ask_anew(base, "/health/ready/") == "503"
    assert stop.wait()[0] == 0
