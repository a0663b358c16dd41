"""Processes die; the money does not."""

from __future__ import annotations

import threading

import pytest

from tests.neighbours import HANG_AFTER, Neighbourhood
from tests.processes.harness import Browser, Stack, eventually

pytestmark = pytest.mark.process
RUNS = 20


@pytest.mark.timeout(300)
def test_a_web_process_killed_between_charge_and_commit_leaves_one_charge_and_a_paid_order(
    stack: Stack, neighbours: Neighbourhood
) -> None:
    """The gateway books and stays silent, the server is killed with -9, a worker finishes: 20 of 20."""
    stack.workers()
    for run in range(1, RUNS + 1):
        base = stack.web()
        browser = Browser(base)
        browser.put_in_basket()
        form = browser.checkout_form()
        neighbours.fault(neighbours.gateway, {"match": {"method": "POST"}, **HANG_AFTER})
        submit = threading.Thread(target=_submit_to_a_dying_server, args=(browser, form))
        submit.start()
        neighbours.wait_for_charges(run)
        stack.kill("web")
        submit.join(10)
        neighbours.heal()
        assert len(neighbours.charges) == run
    eventually(lambda: stack.orders() == {"PAID": RUNS}, 30, str(stack.orders()))
    assert len(neighbours.charges) == RUNS
    keys = {call["idempotency_key"] for call in neighbours.money_calls}
    assert len(keys) == RUNS
    stack.audit()


def _submit_to_a_dying_server(browser: Browser, form: dict[str, str]) -> None:
    import requests

    try:
        browser.submit(form)
    except requests.RequestException:
        return
