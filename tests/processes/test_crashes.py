"""Processes die; the money does not."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.neighbours import HANG_AFTER, Neighbourhood
from tests.processes.harness import Browser, Stack, eventually

pytestmark = pytest.mark.process
RUNS = 20


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


def test_forty_buyers_of_the_last_five_over_two_servers_get_five_orders(
    stack: Stack, neighbours: Neighbourhood
) -> None:
    # Nobody shall be turned away because two cores are busy with forty buyers: that is another test.
    stack.environment.update(CHECKOUT_BUDGET_MS="8000", INLINE_LEASE_SECONDS="10")
    bases = [stack.web("web-1"), stack.web("web-2")]
    stack.workers()
    stack.sql("UPDATE orders_stockitem SET on_hand = 5 WHERE sku = 'ROPE-12'")
    browsers = [Browser(bases[n % 2]) for n in range(40)]
    with ThreadPoolExecutor(40) as pool:
        forms = [_filled_form(browser) for browser in browsers]
        barrier = threading.Barrier(40)

        def together(pair: tuple[Browser, dict[str, str]]) -> str:
            browser, form = pair
            barrier.wait(20)
            page = browser.submit(form)
            return "order" if page.status == 302 else page.text

        results = list(pool.map(together, zip(browsers, forms, strict=True)))
    assert results.count("order") == 5
    others = [text for text in results if text != "order"]
    assert all("Sold out while you looked" in text for text in others), others[0][:300]
    eventually(lambda: stack.orders() == {"PAID": 5}, 20)
    assert len(neighbours.charges) == 5
    stack.audit()


def _filled_form(browser: Browser) -> dict[str, str]:
    browser.put_in_basket()
    return browser.checkout_form()


def test_eight_identical_submits_over_two_servers_make_one_order_and_one_charge(
    stack: Stack, neighbours: Neighbourhood
) -> None:
    bases = [stack.web("web-1"), stack.web("web-2")]
    browser = Browser(bases[0])
    browser.put_in_basket()
    form = browser.checkout_form()
    barrier = threading.Barrier(8)

    def submit(number: int) -> str:
        twin = Browser(bases[number % 2])
        twin.session.cookies.update(browser.session.cookies)
        barrier.wait(10)
        page = twin.submit(form)
        assert page.status == 302, page.text
        return page.path

    with ThreadPoolExecutor(8) as pool:
        paths = set(pool.map(submit, range(8)))
    assert len(paths) == 1
    assert paths.pop().startswith("/orders/")
    eventually(lambda: stack.orders() == {"PAID": 1}, 10)
    assert len(neighbours.charges) == len(neighbours.money_calls) == 1
    assert stack.sql("SELECT count(*) FROM orders_outboxmessage WHERE kind = 'notify'") == [(1,)]
    stack.audit()
