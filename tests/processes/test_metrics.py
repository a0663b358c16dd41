"""What Prometheus reads of a family of processes is what happened, whichever of them it happened in."""

from __future__ import annotations

import os
import re
import signal

import pytest
import requests

from sandbox.processes import free_port
from tests.neighbours import DOWN, Neighbourhood
from tests.processes.harness import Browser, Stack, eventually

pytestmark = pytest.mark.process


def series(port: int) -> dict[str, float]:
    text = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def total(port: int, metric: str, /, **labels: str) -> float:
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return sum(
        value
        for key, value in series(port).items()
        if re.split(r"[{ ]", key)[0] == metric and all(label in key for label in wanted)
    )


def test_calls_of_all_processes_add_up_and_survive_one_that_dies(
    stack: Stack, neighbours: Neighbourhood
) -> None:
    port = free_port()
    base = stack.web(WEB_WORKERS="2", METRICS_PORT=str(port))
    for _ in range(10):
        assert Browser(base).buy().status == 302

    def paid() -> float:
        return total(port, "resilience_circuitbreaker_calls_total", name="payment", kind="successful")

    eventually(lambda: paid() == 10, 10, "ten payments are ten")
    os.kill(stack.children("web")[0], signal.SIGKILL)
    eventually(lambda: paid() == 10, 5)
    assert total(port, "resilience_circuitbreaker_state", name="payment", state="closed") == 1
    eventually(lambda: total(port, "holdfast_mode", mode="normal") == 1, 10)
    text = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
    assert "sk_test" not in text
    assert requests.get(f"{base}/metrics", timeout=10).status_code == 404, "not on the shop's own port"


def test_an_outage_shows_in_the_breaker_the_refusals_and_the_backlog(
    stack: Stack, neighbours: Neighbourhood
) -> None:
    port, worker = free_port(), free_port()
    base = stack.web(METRICS_PORT=str(port), PAYMENT_BREAKER_OPEN_SECONDS="60")
    neighbours.fault(neighbours.gateway, DOWN)
    browser = Browser(base)
    for _ in range(14):
        assert browser.buy().status == 302
    eventually(lambda: total(port, "resilience_circuitbreaker_state", name="payment", state="open") == 1, 10)
    assert total(port, "resilience_rejections_total", name="payment", layer="breaker") >= 1
    assert total(port, "resilience_final_refusals_total", name="payment") >= 1
    stack.start("money-worker", stack.command("money-worker"), METRICS_PORT=str(worker))
    eventually(lambda: _served(worker), 20)
    eventually(lambda: total(worker, "holdfast_outbox_pending", destination="payment") >= 1, 15)


def _served(port: int) -> bool:
    try:
        return "holdfast_outbox_pending" in requests.get(f"http://127.0.0.1:{port}/metrics", timeout=5).text
    except requests.RequestException:
        return False
