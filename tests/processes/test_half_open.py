"""OP-02 with real servers: what a flood finds at the moment the breakers let probes through."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.neighbours import REFUSE, Neighbourhood
from tests.processes.harness import TIME_ENOUGH, Browser, Stack, eventually

pytestmark = pytest.mark.process
PROBES, PROCESSES, OPEN_SECONDS, ANSWER_SECONDS = 3, 4, 5, 2
_PATIENT = {
    **TIME_ENOUGH,
    "WEB_WORKERS": "2",
    "WEB_THREADS": "32",
    "DATABASE_POOL_MIN": "32",
    "PAYMENT_BREAKER_WINDOW": "2",
    "PAYMENT_BREAKER_MIN_CALLS": "2",
    "PAYMENT_BREAKER_OPEN_SECONDS": str(OPEN_SECONDS),
    "PAYMENT_RATE_LIMIT": "1000",
    "DEGRADED_AFTER_OPEN_SECONDS": "600",
}


def open_breakers(stack: Stack) -> int:
    rows = stack.sql("SELECT count(*) FROM payments_breakerreport WHERE kind = 'web' AND state = 'OPEN'")
    return int(rows[0][0])


@pytest.mark.timeout(120)
def test_a_flood_at_the_end_of_an_outage_meets_three_probes_of_each_of_four_processes(
    stack: Stack, neighbours: Neighbourhood
) -> None:
    stack.environment.update(_PATIENT)
    bases = [stack.web("web-1"), stack.web("web-2")]
    stack.sql("UPDATE orders_stockitem SET on_hand = 100000")
    buyers = [Browser(bases[number % 2]) for number in range(60)]
    with ThreadPoolExecutor(4) as pool:
        forms = list(pool.map(lambda buyer: (buyer.put_in_basket(), buyer.checkout_form())[1], buyers))
    neighbours.fault(neighbours.gateway, REFUSE)

    def order_until_all_are_open() -> bool:
        for base in bases:
            Browser(base).buy()
        return open_breakers(stack) == PROCESSES

    eventually(order_until_all_are_open, 60)
    threading.Event().wait(OPEN_SECONDS + 0.5)
    neighbours.fault(neighbours.gateway, {"effect": {"latency_ms": ANSWER_SECONDS * 1000}})
    with ThreadPoolExecutor(len(buyers)) as pool:
        pages = list(pool.map(lambda pair: pair[0].submit(pair[1]), zip(buyers, forms, strict=True)))
    assert {page.status for page in pages} == {302}
    arrived = sorted(call["at_ms"] for call in neighbours.money_calls)
    before_the_first_answer = [at for at in arrived if at < arrived[0] + ANSWER_SECONDS * 1000]
    print(f"{len(before_the_first_answer)} probes before the first answer, {len(arrived)} calls in all")
    assert PROBES <= len(before_the_first_answer) <= PROBES * PROCESSES
    told = [buyer.get(page.path).text for buyer, page in zip(buyers, pages, strict=True)]
    assert sum("Thank you" in text for text in told) == len(neighbours.charges)
    assert all("Thank you" in text or "nothing has been taken yet" in text for text in told)
