"""What Prometheus reads of a family of processes is what happened, whichever of them it happened in."""

from __future__ import annotations

import os
import re
import signal

import pytest
import requests

from config import metrics
from sandbox.processes import free_port
from tests.config.test_metrics import names
from tests.neighbours import DOWN, Neighbourhood
from tests.processes.harness import Browser, Stack, eventually

pytestmark = pytest.mark.process
PATIENT = {"CHECKOUT_BUDGET_MS": "8000", "INLINE_LEASE_SECONDS": "10"}


def series(port: int) -> dict[str, float]:
    lines = [line.rsplit(" ", 1) for line in get(port).splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def total(port: int, metric: str, /, **labels: str) -> float:
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return sum(
        value
        for key, value in series(port).items()
        if re.split(r"[{ ]", key)[0] == metric and all(label in key for label in wanted)
    )


def get(port: int) -> str:
    return requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text


def test_figures_of_all_processes_add_up_and_neither_a_death_nor_an_outage_is_hidden(
    stack: Stack, neighbours: Neighbourhood
) -> None:
    port, worker = free_port(), free_port()
    stack.environment.update(PATIENT)
    base = stack.web(WEB_WORKERS="2", METRICS_PORT=str(port), PAYMENT_BREAKER_OPEN_SECONDS="60")
    stack.start("money-worker", stack.command("money-worker"), METRICS_PORT=str(worker))
    for _ in range(6):
        assert Browser(base).buy().status == 302
    assert requests.get(f"{base}/metrics", timeout=10).status_code == 404, "not on the shop's own port"

    def paid() -> float:
        return total(port, "resilience_circuitbreaker_calls_total", name="payment", kind="successful")

    eventually(lambda: paid() == 6, 30, "six payments are six")
    eventually(lambda: total(port, "holdfast_checkouts_total", end="paid") == 6, 30)
    submits = {"page": "checkout", "method": "POST"}
    assert total(port, "holdfast_http_requests_total", status="302", **submits) == 6
    assert total(port, "holdfast_http_request_duration_seconds_count", **submits) == 6
    attempts = {"name": "payment", "kind": "successful"}
    assert total(port, "resilience_circuitbreaker_calls_seconds_count", **attempts) == 6
    neighbours.fault(neighbours.gateway, DOWN)
    browser = Browser(base)
    state = "resilience_circuitbreaker_state"
    while total(port, state, name="payment", state="open") < 1:
        assert browser.buy().status == 302
    for child in stack.children("web"):
        os.kill(child, signal.SIGKILL)
    eventually(
        lambda: total(port, state, name="payment", state="open") == 0, 30, "a dead breaker still speaks"
    )
    assert paid() == 6
    eventually(lambda: total(worker, "holdfast_outbox_pending", destination="payment") >= 1, 40)
    eventually(lambda: total(port, "holdfast_mode", mode="normal") == 1, 40)
    text = get(port) + get(worker)
    secrets = ("PAYMENT_API_KEY", "SECRET_KEY", "PAYMENT_WEBHOOK_SECRET", "DATABASE_URL", "PAYMENT_URL")
    assert not [name for name in secrets if stack.environment[name] in text]
    shown = {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}
    missing = {name for metric in metrics.every() for name in names(metric)} - shown
    assert missing == set()


def test_figures_survive_a_reload_and_a_worker_started_with_the_same_port(stack: Stack) -> None:
    port = free_port()
    base = stack.web(WEB_WORKERS="2", METRICS_PORT=str(port), DRAIN_SECONDS="0")
    assert Browser(base).buy().status == 302
    eventually(lambda: total(port, "holdfast_checkouts_total") == 1, 30)
    stack.start("worker", stack.command("worker"), METRICS_PORT=str(port))
    eventually(lambda: "no metrics are served" in stack.log("worker"), 30)
    assert total(port, "holdfast_checkouts_total") == 1
    before = set(stack.children("web"))
    os.kill(stack.processes["web"].pid, signal.SIGHUP)
    eventually(lambda: len(fresh := set(stack.children("web"))) == 2 and not fresh & before, 20)
    assert Browser(base).buy().status == 302
    eventually(lambda: total(port, "holdfast_checkouts_total") == 2, 30)
    stack.processes["web"].terminate()
    assert stack.processes["web"].wait(30) == 0
